// SPDX-License-Identifier: Apache-2.0
#include "base/pidfd.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <new>

#include <fcntl.h>
#include <unistd.h>

#include "base/format.h"
#include "base/unique_fd.h"

namespace verbena {

std::string pidfd_field(int pidfd, std::string_view name) try {
  const std::string path = verbena::format("/proc/self/fdinfo/{}", pidfd);
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text("\n");
  std::array<char, 4096> piece;
  for (ssize_t bytes = 1; file && bytes != 0;) {
    bytes = ::read(file.get(), piece.data(), piece.size());
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) break;
    text.append(piece.data(), static_cast<size_t>(bytes));
  }
  const std::string start = verbena::format("\n{}:\t", name);
  const size_t at = text.find(start);
  if (at == std::string::npos) return {};
  const size_t begin = at + start.size();
  return text.substr(begin, text.find('\n', begin) - begin);
} catch (const std::bad_alloc&) {
  return {};
}

pid_t pid_of(int pidfd) {
  const std::string field = pidfd_field(pidfd, "Pid");
  pid_t pid = 0;
  std::from_chars(field.data(), field.data() + field.size(), pid);
  return std::max(pid, 0);  // -1: it has ended
}

}  // namespace verbena
