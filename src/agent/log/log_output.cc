// SPDX-License-Identifier: Apache-2.0
#include "agent/log/log_output.h"

#include <cerrno>

#include <poll.h>
#include <unistd.h>

namespace verbena::agent {
namespace {

// Waits until standard error accepts more. Another program that shares the open file may have made it
// non-blocking.
void wait_for_room() {
  pollfd entry{STDERR_FILENO, POLLOUT, 0};
  ::poll(&entry, 1, -1);
}

bool write_all(std::string_view& rest) {
  while (!rest.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, rest.data(), rest.size());
    if (written > 0) {
      rest.remove_prefix(static_cast<size_t>(written));
    } else if (written < 0 && errno == EAGAIN) {
      wait_for_room();
    } else if (written == 0 || errno != EINTR) {
      return false;
    }
  }
  return true;
}

}  // namespace

bool LogOutput::put(std::string_view line) {
  std::string_view end = is_torn_ ? "\n" : "";
  if (!write_all(end)) return false;
  is_torn_ = false;
  std::string_view rest = line;
  if (write_all(rest)) return true;
  is_torn_ = rest.size() < line.size();
  return false;
}

}  // namespace verbena::agent
