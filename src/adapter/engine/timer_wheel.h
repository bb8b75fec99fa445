// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "base/intrusive_list.h"
#include "base/time.h"

namespace verbena::engine {

// Deadlines of many objects, set and cancelled in constant time. One turn of the wheel is 67 ms in steps of
// 66 us. An object is called once, up to one step after its deadline. An object whose deadline is more than a
// turn ahead is called early, once each turn. It then checks its own deadline and arms again.
//
// T needs the members 'ListHook timer_hook' and 'TimePoint timer_armed_for', which is kNever while the object
// is not on the wheel.
template <class T>
class TimerWheel {
 public:
  explicit TimerWheel(TimePoint now) : current_(tick_of(now)) {}

  // Makes sure that the object is called no later than one step after `deadline`. An earlier time that was
  // set before remains.
  void arm(T& object, TimePoint deadline) {
    if (deadline >= object.timer_armed_for) return;
    cancel(object);
    object.timer_armed_for = deadline;
    int64_t tick = tick_of(deadline) + 1;
    if (tick <= current_) tick = current_ + 1;
    if (tick > current_ + kSlots - 1) tick = current_ + kSlots - 1;
    const auto slot = static_cast<size_t>(tick) % kSlots;
    slots_[slot].push_back(object);
    occupied_[slot / 64] |= uint64_t{1} << (slot % 64);
    next_ = std::min(next_, tick);
  }

  void cancel(T& object) {
    object.timer_hook.unlink();
    object.timer_armed_for = kNever;
  }

  // Calls expired(object) for each object whose time has come. The object may arm again.
  template <class Expired>
  void advance(TimePoint now, Expired expired) {
    const int64_t target = tick_of(now);
    if (target <= current_) return;
    const int64_t first = std::max(current_ + 1, target - kSlots + 1);
    for (int64_t tick = first; tick <= target; ++tick) {
      current_ = tick;
      const auto slot = static_cast<size_t>(tick) % kSlots;
      if ((occupied_[slot / 64] & (uint64_t{1} << (slot % 64))) == 0) continue;
      occupied_[slot / 64] &= ~(uint64_t{1} << (slot % 64));
      List due;
      due.splice_back(slots_[slot]);
      while (!due.empty()) {
        T& object = due.pop_front();
        object.timer_armed_for = kNever;
        expired(object);
      }
    }
    if (next_ <= current_) next_ = kUnknown;
  }

  // Returns when advance() next has work to do; kNever if the wheel is empty. The result is cached, as it is
  // asked for with each message of an application that leaves its shard to the engine thread.
  TimePoint next() const {
    if (next_ == kUnknown) next_ = find_next();
    return next_ == kNone ? kNever : TimePoint(Duration(next_ * kTick));
  }

 private:
  static constexpr int64_t kTick = 65536;  // ns
  static constexpr int64_t kSlots = 1024;
  using List = IntrusiveList<T, &T::timer_hook>;

  static constexpr int64_t kUnknown = INT64_MIN;
  static constexpr int64_t kNone = INT64_MAX;

  static int64_t tick_of(TimePoint t) { return t.time_since_epoch().count() / kTick; }

  int64_t find_next() const {
    for (int64_t step = 1; step < kSlots;) {
      const auto slot = static_cast<size_t>(current_ + step) % kSlots;
      const uint64_t rest = occupied_[slot / 64] >> (slot % 64);
      if (rest == 0) {
        step += static_cast<int64_t>(64 - slot % 64);
        continue;
      }
      return current_ + step + std::countr_zero(rest);
    }
    return kNone;
  }

  int64_t current_;
  mutable int64_t next_ = kNone;  // the first occupied tick after current_
  std::array<List, kSlots> slots_;
  std::array<uint64_t, kSlots / 64> occupied_{};  // may be set for a slot whose objects were cancelled
};

}  // namespace verbena::engine
