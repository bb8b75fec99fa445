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

// Reads the QP counters in the status pages of all leased slots, in small steps: a reading of all would keep
// clients waiting. Also reads the pages of returned slots a last time.
//
// For the agent's thread.
class CounterSweep {
 public:
  // REQUIRES: `slots` and `counters` outlive this object
  CounterSweep(const SlotTable& slots, CounterCollector& counters) : slots_(slots), counters_(counters) {}

  // Starts a sweep through all slots if none is in progress.
  void begin();
  // Queues a last reading of a slot whose lease is about to end. Keeps the slot's page open until this
  // reading is complete.
  void finish(const LeasedSlot& slot);
  // Returns whether there is more to read, in the current sweep or in returned slots.
  bool has_work() const { return next_.has_value() || !ended_.empty(); }
  // Reads until `work` units (QpsRead::work, about one for each QP) are done or no work is left. Returns the
  // number of units done.
  size_t advance(size_t work);
  // Returns the number of the user's returned slots that are still unread.
  size_t unfinished(uid_t user) const;

 private:
  struct Ended {
    LeasedSlot slot;
    UniqueFd page;
    uint32_t place = 0;
  };
  size_t read_leased();
  size_t read_ended();

  const SlotTable& slots_;
  CounterCollector& counters_;
  std::optional<uint32_t> next_;  // the slot that is read now or next
  uint64_t lease_ = 0;            // the lease of that slot when it was last read
  uint32_t place_ = 0;            // the next QP to read there
  std::deque<Ended> ended_;
  std::map<uid_t, size_t> unfinished_;
};

// Limits how much the agent reads, in units of QpsRead::work (about one for each QP). The allowance grows by
// 2,048 units in a millisecond, up to 16,384.
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
