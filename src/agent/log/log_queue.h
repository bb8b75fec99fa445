// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>

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

}  // namespace verbena::agent
