// SPDX-License-Identifier: Apache-2.0
#include "control/model/agent_silence.h"

#include <cstdio>
#include <string_view>

#include <fcntl.h>
#include <unistd.h>

#include "base/format.h"
#include "base/log.h"
#include "base/unique_fd.h"

namespace verbena::control {

char process_state(pid_t pid) {
  if (pid <= 0) return '?';
  char text[512];
  std::snprintf(text, sizeof text, "/proc/%d/stat", pid);
  const UniqueFd file(::open(text, O_RDONLY | O_CLOEXEC));
  const ssize_t bytes = file ? ::read(file.get(), text, sizeof text) : -1;
  const std::string_view line(text, bytes > 0 ? static_cast<size_t>(bytes) : 0);
  const size_t end = line.rfind(')');  // the program's name may contain anything
  return end == std::string_view::npos || end + 2 >= line.size() ? '?' : line[end + 2];
}

std::string describe_silence(pid_t pid) {
  if (pid <= 0) return "agent does not respond";
  const std::string silent = verbena::format("agent (pid {}) does not respond", pid);
  switch (process_state(pid)) {
    case 'T':
      return verbena::format("{}; it is stopped: 'kill -CONT {}' continues it", silent, pid);
    case 't':
      return silent + "; it is stopped by a debugger";
    case 'D':
      return silent + "; it waits in the kernel (state D)";
    default:
      return silent;
  }
}

void SilenceLog::consider() {
  if (MonotonicClock::now() < due_) return;
  due_ = TimePoint::max();
  log_error("{}; waiting for it", describe_silence(agent_));
}

}  // namespace verbena::control
