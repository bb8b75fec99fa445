// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <string>
#include <utility>

#include <fcntl.h>
#include <termios.h>
#include <unistd.h>

#include "base/unique_fd.h"

namespace verbena::test {

// A descriptor `end` that blocks writers, and `other`, its other side.
struct Stalled {
  UniqueFd end, other;
};

// Returns a full pipe.
inline Stalled full_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return {};
  const std::string block(4096, '.');
  while (::write(ends[1], block.data(), block.size()) > 0) {
  }
  ::fcntl(ends[1], F_SETFL, 0);
  return {UniqueFd(ends[1]), UniqueFd(ends[0])};
}

// Returns a terminal whose output is stopped, as by ^S.
inline Stalled stopped_terminal() {
  UniqueFd master(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK));
  char name[128];
  if (::grantpt(master.get()) != 0 || ::unlockpt(master.get()) != 0 ||
      ::ptsname_r(master.get(), name, sizeof name) != 0) {
    return {};
  }
  UniqueFd terminal(::open(name, O_RDWR | O_NOCTTY | O_CLOEXEC));
  ::tcflow(terminal.get(), TCOOFF);
  return {std::move(terminal), std::move(master)};
}

// Replaces standard error while it exists.
class StandardError {
 public:
  explicit StandardError(int fd) { replace(fd); }
  ~StandardError() { restore(); }
  StandardError(const StandardError&) = delete;
  StandardError& operator=(const StandardError&) = delete;

  static void replace(int fd) { ::dup2(fd, STDERR_FILENO); }
  void restore() const { ::dup2(kept_.get(), STDERR_FILENO); }

 private:
  const UniqueFd kept_{::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 10)};
};

}  // namespace verbena::test
