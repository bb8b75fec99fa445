// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "agent/log/log_limit.h"
#include "base/log.h"
#include "base/time.h"

namespace verbena::agent {

// Takes what the process logs, and writes it on a thread of its own, so that nobody who logs waits: standard
// error may be a pipe that nobody reads, a terminal that is stopped, or a slow disk. Lines beyond
// `max_bytes`, and those of users who log too much (LogLimit), are left out and counted. Without lines there
// is no thread.
//
// Any thread may log. REQUIRES: when it is destroyed, no thread logs any more.
class AgentLog final : public LogSink {
 public:
  // Writes a line and waits as long as that takes. False: it could not be written.
  using Put = std::function<bool(std::string_view line)>;

  explicit AgentLog(Put put, size_t max_bytes = size_t{256} << 10, const LogLimit::Sizes& limits = {});
  // Writes what is left, if that takes no longer than kPatience.
  ~AgentLog();
  AgentLog(const AgentLog&) = delete;
  AgentLog& operator=(const AgentLog&) = delete;

  static constexpr Duration kPatience = std::chrono::milliseconds(200);

  void write(std::string line) noexcept override;
  // Lines are written by this from now on. A thread that hangs in the former one is left to itself.
  void write_by(Put put);
  // Waits until everything is written. False: that took too long.
  bool flush(Duration patience = kPatience);

 private:
  struct State;
  struct Writer;
  static void* run(void* writer);
  void wake_writer();

  const std::shared_ptr<State> state_;  // a thread that hangs may outlive us
};

}  // namespace verbena::agent
