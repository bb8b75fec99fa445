// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>

#include <sys/types.h>

#include "agent/counter_collector.h"
#include "agent/slot_table.h"
#include "base/time.h"
#include "base/unique_fd.h"

namespace verbena::agent {

// Reads the status pages of all lent slots, a bit at a time: processes may publish more than can be read in
// one go while clients wait. Pages of slots that have come back are read for a last time beside that, those
// of one user in turns with those of the others.
//
// Of the agent's thread.
class CounterSweep {
 public:
  // REQUIRES: both outlive this
  CounterSweep(const SlotTable& slots, CounterCollector& counters) : slots_(slots), counters_(counters) {}

  // Begins a round through all slots, if none is under way.
  void begin();
  // The slot is about to come back. Its page stays open until it has been read.
  void finish(const LentSlot& slot);
  // Whether there is more to read, of this round or of slots that came back.
  bool has_work() const { return next_.has_value() || !ended_.empty(); }
  // Reads about so much, in QpsRead::work. Answers how much it was.
  size_t advance(size_t work);
  // How many slots of the user have come back and are not yet read.
  size_t unfinished(uid_t user) const;

 private:
  struct Ended {
    LentSlot slot;
    UniqueFd page;
    uint32_t place = 0;
  };
  size_t read_lent();
  size_t read_ended();

  const SlotTable& slots_;
  CounterCollector& counters_;
  std::optional<uint32_t> next_;              // the slot that is read, or will be
  uint64_t lending_ = 0;                      // what was read of it so far was this one's,
  uint32_t place_ = 0;                        // up to here
  std::map<uid_t, std::deque<Ended>> ended_;  // by user; none is empty
  uid_t last_turn_ = 0;                       // the user of whose one was read last
};

// How long may be read now: over time a fraction of the time that there is, and after a pause a few
// milliseconds at once. What reading takes is counted by the clock, and not by what is read: where others
// want the processor, too, the agent gets little of it, and what it gets is to be for those who wait for
// answers.
class SweepAllowance {
 public:
  static constexpr Duration kMost = std::chrono::milliseconds(4);
  static constexpr int kFraction = 4;
  // More is forgiven: somebody else had the processor for long.
  static constexpr Duration kMostDebt = std::chrono::milliseconds(100);

  bool lasts(TimePoint now) {
    if (now > since_) {
      left_ = std::min(kMost, left_ + std::min(now - since_, kFraction * (kMost + kMostDebt)) / kFraction);
      since_ = now;
    }
    return left_ > Duration::zero();
  }
  void spend(Duration time) { left_ = std::max(-kMostDebt, left_ - time); }

 private:
  Duration left_ = kMost;
  TimePoint since_{};
};

}  // namespace verbena::agent
