// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <atomic>
#include <cstdlib>
#include <iterator>
#include <utility>

#include <strings.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace verbena {
namespace {

constexpr std::string_view kNames[] = {"none", "error", "warning", "info", "debug"};
constexpr size_t kMaxShown = 40;

struct Wish {
  LogLevel level = LogLevel::kNone;
  const char* unknown = nullptr;  // the value, if it is not exactly a level's name
};

// An unknown word means the level of that name in another case, else kWarning: too much output is better than
// none.
Wish read_environment() {
  const char* wanted = ::secure_getenv("VERBENA_LOG");
  if (wanted == nullptr || *wanted == '\0') return {};
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (kNames[i] == wanted) return {static_cast<LogLevel>(i)};
  }
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (::strcasecmp(kNames[i].data(), wanted) == 0) return {static_cast<LogLevel>(i), wanted};
  }
  return {LogLevel::kWarning, wanted};
}

// Logs at any level: the user set the variable to get output.
void complain_of(const Wish& wish) {
  try {
    log_line(LogLevel::kWarning,
             verbena::format("VERBENA_LOG={} is not one of none, error, warning, info, debug; taken as '{}'",
                             std::string_view(wish.unknown).substr(0, kMaxShown),
                             kNames[static_cast<size_t>(wish.level)]));
  } catch (...) {  // out of memory: as for any other line
  }
}

// The environment has not been read yet.
constexpr auto kUnread = static_cast<LogLevel>(-1);
constinit std::atomic<LogLevel> current{kUnread};
constinit std::atomic<LogSink*> sink_in_use{nullptr};

}  // namespace

LogLevel log_level() {
  LogLevel level = current.load(std::memory_order_relaxed);
  if (level != kUnread) return level;
  const Wish wish = read_environment();
  if (!current.compare_exchange_strong(level, wish.level, std::memory_order_relaxed)) return level;
  if (wish.unknown != nullptr) complain_of(wish);
  return wish.level;
}

void set_log_level(LogLevel level) {
  current.store(level, std::memory_order_relaxed);
}

void set_log_sink(LogSink* sink) {
  sink_in_use.store(sink, std::memory_order_release);
}

std::string log_text(LogLevel level, std::string_view message) {
  return verbena::format("verbena[{}] {}: {}\n", ::getpid(), kNames[static_cast<size_t>(level)], message);
}

void log_line(LogLevel level, std::string_view message) noexcept {
  try {
    std::string line = log_text(level, message);
    if (LogSink* const sink = sink_in_use.load(std::memory_order_acquire))
      return sink->write(std::move(line));
    // A bare system call: the C library's write() is a cancellation point, and this function cannot be
    // unwound.
    [[maybe_unused]] const long written = ::syscall(SYS_write, STDERR_FILENO, line.data(), line.size());
  } catch (...) {  // out of memory while logging: drop the line
  }
}

}  // namespace verbena
