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

// Sums the counters of the QPs in all leased slots into device counters, and writes these to the state
// directory. Does so every second while slots are leased, and every 10 ms while a program also has one of the
// counter files open. If the agent has no time to read all QPs at this rate, the values in the files are
// older.
class CounterPublisher {
 public:
  CounterPublisher(EventLoop& loop, const SlotTable& slots, const LinkTable& links, uid_t own)
      : loop_(loop), slots_(slots), links_(links), counters_(own), sweep_(slots, counters_) {}

  // Sets the writer of the state directory. Called once, when the directory has been created.
  void show_in(StateWriter& state);
  // Stops writing counters. Called before the state directory is removed.
  void hide() { state_ = nullptr; }

  // Starts to read all counters, reads some and shows the sums. The rest is read later in small steps. Does
  // nothing within 8 ms of the last call.
  void collect();
  // Calls collect(), and returns the counters of the device: zeros if there is no such device.
  DeviceCounters of(uint32_t device_index);
  // Starts to collect at regular intervals. Called when a slot is leased.
  void collect_regularly();
  // Queues a last reading of the slot's counters, and reads some. Called before the slot's lease ends. show()
  // then writes the sums.
  void finish(const LeasedSlot& slot);
  // Returns whether 64 or more returned slots of the user are still unread. The user then gets no slot.
  bool is_behind(uid_t user) const;
  void show();
  // Adds and removes devices, and counts links that have gone down. `before` has the links before the change.
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
