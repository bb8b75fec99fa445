// SPDX-License-Identifier: Apache-2.0
#include "agent/links/group_sockets.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <string_view>

#include <sys/epoll.h>

#include "base/format.h"

namespace verbena::agent {
namespace {

// Counts the files in an epoll instance by their data. Each has a line in its fdinfo, such as
// "tfd:  7 events:  0 data:  3e8 pos:0 ino:1a sdev:8".
Result<std::map<uint64_t, size_t>> files_in(int epoll) {
  constexpr std::string_view kData = "data:";
  std::ifstream file(verbena::format("/proc/self/fdinfo/{}", epoll));
  std::map<uint64_t, size_t> files;
  for (std::string line; std::getline(file, line);) {
    const size_t data = line.find(kData);
    if (line.starts_with("tfd:") && data != std::string::npos)
      ++files[std::strtoull(line.c_str() + data + kData.size(), nullptr, 16)];
  }
  if (!file.eof()) return fail(EIO);
  return files;
}

}  // namespace

Result<void> GroupSockets::add(uid_t user, int socket, TimePoint now) {
  if (!epoll_) epoll_ = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_) return fail(errno);
  if (!quota_.allows(user)) look(now);
  if (!quota_.allows(user)) return fail(ENOSPC);
  epoll_event nothing{};
  nothing.data.u64 = user;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket, &nothing) != 0) return fail(errno);
  quota_.take(user);
  users_.insert(user);
  return {};
}

void GroupSockets::look(TimePoint now) {
  if (now < next_look_) return;
  next_look_ = now + kLookInterval;
  auto left = files_in(epoll_.get());
  if (!left) return;
  std::erase_if(users_, [&](uid_t user) {
    const size_t counted = quota_.of(user);
    quota_.give_back(user, counted - std::min((*left)[user], counted));
    return quota_.of(user) == 0;
  });
}

}  // namespace verbena::agent
