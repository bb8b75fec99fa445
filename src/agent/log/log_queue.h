// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>

namespace verbena::agent {

// Lines that wait to be written, of limited size. A line that does not fit, or could not be written, is
// dropped and counted, and an entry in its place says how many there were.
//
// One thread at a time.
class LogQueue {
 public:
  struct Entry {
    std::string line;
    size_t dropped = 0;  // not 0: the entry stands for so many dropped lines
  };

  explicit LogQueue(size_t max_bytes) : max_bytes_(max_bytes) {}

  void add(std::string line);
  // Whether there is something to write now. After a failure that is only so when the next line has come: it
  // would fail again, and again.
  bool has_next() const { return !entries_.empty() && !is_failing_; }
  // REQUIRES: has_next()
  Entry take();
  // The entry that was taken could not be written. The others fail for the same reason, so they are counted,
  // too.
  void failed(const Entry& entry);

 private:
  const size_t max_bytes_;
  size_t bytes_ = 0;
  bool is_failing_ = false;
  std::deque<Entry> entries_;
};

}  // namespace verbena::agent
