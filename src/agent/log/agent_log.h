// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "agent/log/log_limit.h"
#include "base/log.h"
#include "base/time.h"

namespace verbena::agent {

// Queues log lines until they are written, up to `max_bytes` in total. Drops lines that do not fit or could
// not be written. An entry in place of dropped lines has their number.
//
// For one thread at a time.
class LogQueue {
 public:
  struct Entry {
    std::string line;
    size_t dropped = 0;  // if not 0, the entry stands for this many dropped lines
  };

  explicit LogQueue(size_t max_bytes) : max_bytes_(max_bytes) {}

  void add(std::string line);
  // Returns whether there is an entry to write now. After failed(), returns false until the next add(),
  // because an immediate retry would fail too.
  bool has_next() const { return !entries_.empty() && !is_failing_; }
  // Removes the first entry and returns it. REQUIRES: has_next()
  Entry take();
  // Records that `entry`, from take(), could not be written. Drops all queued lines too, which would fail for
  // the same reason.
  void failed(const Entry& entry);

 private:
  const size_t max_bytes_;
  size_t bytes_ = 0;
  bool is_failing_ = false;
  std::deque<Entry> entries_;
};

// Queues the process's log lines and writes them on a thread of its own, so that no logging thread waits.
// Standard error may be a pipe without a reader, a stopped terminal, or a slow disk. Drops and counts lines
// when `max_bytes` are queued already, and lines of users that log too much (LogLimit). The writing thread
// starts with the first line.
//
// Installs itself as the process's log sink until it is destroyed. Any thread may log. REQUIRES: no thread
// logs during the destruction
class AgentLog final : public LogSink {
 public:
  // Writes a line, and may block while doing so. Returns false if the line could not be written.
  using Put = std::function<bool(std::string_view line)>;

  explicit AgentLog(Put put, size_t max_bytes = size_t{256} << 10, const LogLimit::Sizes& limits = {});
  // Waits up to kPatience for the queued lines to be written.
  ~AgentLog();
  AgentLog(const AgentLog&) = delete;
  AgentLog& operator=(const AgentLog&) = delete;

  static constexpr Duration kPatience = std::chrono::milliseconds(200);

  void write(std::string line) noexcept override;
  // Replaces the function that writes lines; queued lines go to the new one. A thread that hangs in the old
  // function is abandoned.
  void write_by(Put put);
  // Waits until no line is queued or being written. Returns false if that takes longer than `patience`.
  bool flush(Duration patience = kPatience);

 private:
  struct State;
  struct Writer;
  static void* run(void* writer);
  void wake_writer();

  const std::shared_ptr<State> state_;  // a hanging thread may outlive this object
};

}  // namespace verbena::agent
