// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <atomic>
#include <cstdlib>

#include <sys/syscall.h>
#include <unistd.h>

namespace verbena {
namespace {

constexpr std::string_view kNames[] = {"none", "error", "warning", "info", "debug"};

LogLevel level_from_environment() {
  const char* wanted = std::getenv("VERBENA_LOG");  // NOLINT(concurrency-mt-unsafe): read once, at first use
  if (wanted == nullptr) return LogLevel::kNone;
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (kNames[i] == wanted) return static_cast<LogLevel>(i);
  }
  return LogLevel::kWarning;  // set, but to a word we do not know: better to say too much than nothing
}

// Nobody has asked yet.
constexpr auto kUnread = static_cast<LogLevel>(-1);
constinit std::atomic<LogLevel> current{kUnread};

}  // namespace

LogLevel log_level() {
  LogLevel level = current.load(std::memory_order_relaxed);
  if (level != kUnread) return level;
  const LogLevel wanted = level_from_environment();
  return current.compare_exchange_strong(level, wanted, std::memory_order_relaxed) ? wanted : level;
}

void set_log_level(LogLevel level) {
  current.store(level, std::memory_order_relaxed);
}

void log_line(LogLevel level, std::string_view message) noexcept {
  try {
    const std::string line =
        fmt::format("verbena[{}] {}: {}\n", ::getpid(), kNames[static_cast<size_t>(level)], message);
    // Past the C library, whose write() is a cancellation point: this function cannot be unwound.
    [[maybe_unused]] const long written = ::syscall(SYS_write, STDERR_FILENO, line.data(), line.size());
  } catch (...) {  // out of memory while logging: drop the line
  }
}

}  // namespace verbena
