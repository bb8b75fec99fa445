// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/intrusive_list.h"
#include "base/time.h"

namespace verbena::engine {

// A moment at which somebody beside the QPs wants to be called; set by Shard::set_alarm().
class Alarm {
 public:
  virtual ~Alarm() = default;
  // The moment has come. With the shard's lock held; the alarm may be set again.
  virtual void on_alarm() = 0;

 private:
  friend class Alarms;
  ListHook hook_;
  TimePoint due_ = kNever;
};

// Alarms in the order in which they are due. Exact, unlike the timer wheel, and meant for few: setting one
// costs a step for each that is due later.
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
