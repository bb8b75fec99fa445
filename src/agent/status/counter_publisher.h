// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "agent/event_loop.h"
#include "agent/links/link_table.h"
#include "agent/slots/slot_table.h"
#include "agent/status/counter_collector.h"
#include "agent/status/counter_sweep.h"
#include "agent/status/state_writer.h"
#include "base/time.h"

namespace verbena::agent {

// Sums what the QPs of all lent slots count, regularly while slots are lent, and shows it in the state
// directory; more often while a program has one of the files open. Where there is more to read than the agent
// has time for, what is shown is older.
class CounterPublisher {
 public:
  CounterPublisher(EventLoop& loop, const SlotTable& slots, const LinkTable& links, uid_t own)
      : loop_(loop), slots_(slots), links_(links), counters_(own), sweep_(slots, counters_) {}

  // Where to show them. REQUIRES: called before all else, if at all
  void show_in(StateWriter& state);
  // A state directory that is about to end.
  void hide() { state_ = nullptr; }

  void collect();
  DeviceCounters of(uint32_t device_index);
  // A slot was lent: from now on there is something to collect.
  void collect_regularly();
  // The same for the last time: the slot will be another's. What it brings is seen after show().
  void finish(const LeasedSlot& slot);
  // Whether so many slots of the user have come back with so much in them that it may have no more for now.
  bool is_behind(uid_t user) const;
  void show();
  void links_changed(const std::vector<control::Link>& before);

 private:
  void on_readers();
  void read();

  EventLoop& loop_;
  const SlotTable& slots_;
  const LinkTable& links_;
  StateWriter* state_ = nullptr;
  CounterCollector counters_;
  CounterSweep sweep_;
  SweepAllowance allowance_;
  TimePoint collected_{};
  std::optional<EventLoop::TimerId> next_;
  std::optional<EventLoop::TimerId> rest_;  // of what is to be read
};

}  // namespace verbena::agent
