// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "base/format.h"

namespace verbena {

// Verbena's only logger. Silent by default; VERBENA_LOG=error|warning|info|debug enables it. Writes to
// standard error, one line per message and one write(2) per line. Any thread may log.
enum class LogLevel { kNone, kError, kWarning, kInfo, kDebug };

// Returns the level up to which messages are logged. The first call reads the level from the variable
// VERBENA_LOG. An unknown word means kWarning; set-user-ID programs ignore the variable. Our own programs may
// set another level.
LogLevel log_level();
void set_log_level(LogLevel level);

// Receives each log line, with its newline, in place of standard error, for processes that must not block
// there.
class LogSink {
 public:
  virtual void write(std::string line) noexcept = 0;

 protected:
  ~LogSink() = default;
};
// Installs the sink; nullptr restores standard error. REQUIRES: the sink outlives all logging threads
void set_log_sink(LogSink* sink);

// Returns the message as a log line: "verbena[PID] LEVEL: MESSAGE\n".
std::string log_text(LogLevel level, std::string_view message);
// Writes a log line whatever the log level is.
void log_line(LogLevel level, std::string_view message) noexcept;

template <class... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) noexcept {
  if (level > log_level()) return;
  try {
    log_line(level, verbena::format(format, std::forward<Args>(args)...));
  } catch (...) {  // a log line must never become the caller's problem
  }
}

template <class... Args>
void log_error(fmt::format_string<Args...> format, Args&&... args) noexcept {
  log(LogLevel::kError, format, std::forward<Args>(args)...);
}
template <class... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) noexcept {
  log(LogLevel::kWarning, format, std::forward<Args>(args)...);
}
template <class... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) noexcept {
  log(LogLevel::kInfo, format, std::forward<Args>(args)...);
}
template <class... Args>
void log_debug(fmt::format_string<Args...> format, Args&&... args) noexcept {
  log(LogLevel::kDebug, format, std::forward<Args>(args)...);
}

}  // namespace verbena
