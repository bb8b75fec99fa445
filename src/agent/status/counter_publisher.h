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

// Sums the counters of the QPs in all leased slots, and shows the sums in the state directory. Does so once a
// second while slots are leased, and every 10 ms while a program has one of the counter files open. If there
// is more to read than the agent has time for, the shown values are older.
class CounterPublisher {
 public:
  CounterPublisher(EventLoop& loop, const SlotTable& slots, const LinkTable& links, uid_t own)
      : loop_(loop), slots_(slots), links_(links), counters_(own), sweep_(slots, counters_) {}

  // Sets the directory for the counters. REQUIRES: called before all other methods, if at all
  void show_in(StateWriter& state);
  // Stops showing counters: the state directory is about to be removed.
  void hide() { state_ = nullptr; }

  void collect();
  DeviceCounters of(uint32_t device_index);
  // Starts to collect at regular intervals. Called when a slot is leased.
  void collect_regularly();
  // Collects the slot's counters a last time before its lease ends. The directory shows them after show().
  void finish(const LeasedSlot& slot);
  // Whether 64 returned slots of the user are still unread: the user may get no more slots for now.
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
  std::optional<EventLoop::TimerId> rest_;  // pause between two readings
};

}  // namespace verbena::agent
