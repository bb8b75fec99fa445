// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/intrusive_list.h"
#include "base/time.h"

namespace verbena::engine {

// A time at which an object other than a QP wants to be called. Set by Shard::set_alarm().
class Alarm {
 public:
  virtual ~Alarm() = default;
  // Called when the time has come, with the shard's lock held. It may set the alarm again.
  virtual void on_alarm() = 0;

 private:
  friend class Alarms;
  ListHook hook_;
  TimePoint due_ = kNever;
};

// The alarms of a shard, sorted by time. Exact, unlike the timer wheel, and meant for a few alarms: setting
// one takes a step for each alarm that is due later.
class Alarms {
 public:
  // REQUIRES: the alarm is not set
  void set(Alarm& alarm, TimePoint due) {
    alarm.due_ = due;
    alarms_.insert_sorted(alarm, [](const Alarm& a, const Alarm& b) { return a.due_ < b.due_; });
  }
  void cancel(Alarm& alarm) { alarm.hook_.unlink(); }

  TimePoint next() { return alarms_.empty() ? kNever : alarms_.front().due_; }

  void ring_due(TimePoint now) {
    while (next() <= now) alarms_.pop_front().on_alarm();
  }

 private:
  IntrusiveList<Alarm, &Alarm::hook_> alarms_;
};

}  // namespace verbena::engine
