// SPDX-License-Identifier: Apache-2.0
#include "agent/links/group_sockets.h"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <string>

#include <sys/epoll.h>

#include "base/format.h"

namespace verbena::agent {
namespace {

// Returns the number of files in an epoll instance. Each has a line in its fdinfo.
Result<size_t> files_in(int epoll) {
  std::ifstream file(verbena::format("/proc/self/fdinfo/{}", epoll));
  size_t files = 0;
  for (std::string line; std::getline(file, line);) files += line.starts_with("tfd:") ? 1 : 0;
  if (!file.eof()) return fail(EIO);
  return files;
}

}  // namespace

Result<void> GroupSockets::add(uid_t user, int socket, TimePoint now) {
  OfUser& its = users_[user];
  if (!its.epoll) its.epoll = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
  if (!its.epoll) return fail(errno);
  if (!quota_.allows(user)) look(user, its, now);
  if (!quota_.allows(user)) return fail(ENOSPC);
  epoll_event nothing{};
  if (::epoll_ctl(its.epoll.get(), EPOLL_CTL_ADD, socket, &nothing) != 0) return fail(errno);
  quota_.take(user);
  return {};
}

void GroupSockets::look(uid_t user, OfUser& its, TimePoint now) {
  if (now < its.next_look) return;
  its.next_look = now + kLookInterval;
  const auto left = files_in(its.epoll.get());
  if (left) quota_.give_back(user, quota_.of(user) - std::min(*left, quota_.of(user)));
}

}  // namespace verbena::agent
