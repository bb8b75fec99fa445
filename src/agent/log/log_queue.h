// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>

namespace verbena::agent {

// Log lines that wait to be written, up to a maximum size. A line that does not fit or could not be written
// is dropped. An entry in its place has the number of dropped lines.
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
  // Whether there is an entry to write now. After a failure, false until the next line has come: a retry
  // would fail again.
  bool has_next() const { return !entries_.empty() && !is_failing_; }
  // REQUIRES: has_next()
  Entry take();
  // Records that the entry could not be written. Drops all others, which would fail for the same reason.
  void failed(const Entry& entry);

 private:
  const size_t max_bytes_;
  size_t bytes_ = 0;
  bool is_failing_ = false;
  std::deque<Entry> entries_;
};

}  // namespace verbena::agent
