// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>

#include <sys/types.h>

#include "agent/slots/slot_table.h"
#include "agent/status/counter_collector.h"
#include "base/time.h"
#include "base/unique_fd.h"

namespace verbena::agent {

// Reads the status pages of all lent slots, a bit at a time: processes may publish more than can be read in
// one go while clients wait. Pages of slots that have come back are read for a last time beside that.
//
// Of the agent's thread.
class CounterSweep {
 public:
  // REQUIRES: both outlive this
  CounterSweep(const SlotTable& slots, CounterCollector& counters) : slots_(slots), counters_(counters) {}

  // Begins a round through all slots, if none is under way.
  void begin();
  // The slot is about to come back. Its page stays open until it has been read.
  void finish(const LeasedSlot& slot);
  // Whether there is more to read, of this round or of slots that came back.
  bool has_work() const { return next_.has_value() || !ended_.empty(); }
  // Reads about so much, in QpsRead::work. Answers how much it was.
  size_t advance(size_t work);
  // How many slots of the user have come back and are not yet read.
  size_t unfinished(uid_t user) const;

 private:
  struct Ended {
    LeasedSlot slot;
    UniqueFd page;
    uint32_t place = 0;
  };
  size_t read_lent();
  size_t read_ended();

  const SlotTable& slots_;
  CounterCollector& counters_;
  std::optional<uint32_t> next_;  // the slot that is read, or will be
  uint64_t lending_ = 0;          // what was read of it so far was this one's,
  uint32_t place_ = 0;            // up to here
  std::deque<Ended> ended_;
  std::map<uid_t, size_t> unfinished_;
};

// How much may be read now: over time a fraction of what one processor can read, and after a pause a few
// milliseconds' worth of it at once.
class SweepAllowance {
 public:
  static constexpr size_t kMax = 16 * 1024;
  static constexpr size_t kPerMillisecond = 2 * 1024;

  size_t at(TimePoint now) {
    const auto passed = std::chrono::duration_cast<std::chrono::milliseconds>(now - since_).count();
    if (passed <= 0) return left_;
    left_ = std::min<size_t>(kMax,
                             left_ + static_cast<size_t>(std::min<int64_t>(passed, 1000)) * kPerMillisecond);
    since_ = now;
    return left_;
  }
  void spend(size_t work) { left_ -= std::min(left_, work); }

 private:
  size_t left_ = kMax;
  TimePoint since_{};
};

}  // namespace verbena::agent
