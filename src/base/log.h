// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "base/format.h"

namespace verbena {

// Verbena's one logger. Silent by default: VERBENA_LOG=error|warning|info|debug makes it speak, on standard
// error, one line a message, written with a single write(2). Any thread may log.
enum class LogLevel { kNone, kError, kWarning, kInfo, kDebug };

// The level read from VERBENA_LOG at the first call; programs of our own may set another.
LogLevel log_level();
void set_log_level(LogLevel level);

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
