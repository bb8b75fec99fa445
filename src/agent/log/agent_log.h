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

// Collects the process's log lines and writes them on a thread of its own, so that no logging thread waits.
// Standard error may be a pipe without a reader, a stopped terminal, or a slow disk. Drops and counts lines
// beyond `max_bytes`, and those of users that log too much (LogLimit). The thread starts with the first line.
//
// Any thread may log. REQUIRES: no thread logs when it is destroyed
class AgentLog final : public LogSink {
 public:
  // Writes a line and waits as long as that takes. False if it could not be written.
  using Put = std::function<bool(std::string_view line)>;

  explicit AgentLog(Put put, size_t max_bytes = size_t{256} << 10, const LogLimit::Sizes& limits = {});
  // Writes the remaining lines, but waits at most kPatience.
  ~AgentLog();
  AgentLog(const AgentLog&) = delete;
  AgentLog& operator=(const AgentLog&) = delete;

  static constexpr Duration kPatience = std::chrono::milliseconds(200);

  void write(std::string line) noexcept override;
  // Replaces the function that writes lines. A thread that hangs in the old one is abandoned.
  void write_by(Put put);
  // Waits until everything is written. False after `patience`.
  bool flush(Duration patience = kPatience);

 private:
  struct State;
  struct Writer;
  static void* run(void* writer);
  void wake_writer();

  const std::shared_ptr<State> state_;  // a hanging thread may outlive this object
};

}  // namespace verbena::agent
