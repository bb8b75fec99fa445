// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "base/format.h"

namespace verbena {

// Verbena's one logger. Silent by default: VERBENA_LOG=error|warning|info|debug makes it speak, on standard
// error, one line a message, written with a single write(2). Any thread may log.
enum class LogLevel { kNone, kError, kWarning, kInfo, kDebug };

// The level read from VERBENA_LOG at the first call; programs of our own may set another.
LogLevel log_level();
void set_log_level(LogLevel level);

// Takes the lines instead, each with its end: for a process that must not wait for its standard error.
class LogSink {
 public:
  virtual void write(std::string line) noexcept = 0;

 protected:
  ~LogSink() = default;
};
// nullptr: standard error again. REQUIRES: the sink stays for as long as a thread may log
void set_log_sink(LogSink* sink);

// The message as it stands in the log.
std::string log_text(LogLevel level, std::string_view message);
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
