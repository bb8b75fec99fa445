// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "base/intrusive_list.h"
#include "base/time.h"

namespace verbena::engine {

// Deadlines of many objects, set and cancelled in constant time. One turn is 67 ms in steps of 66 us. An
// object is asked once, up to one step after its deadline. What lies more than a turn ahead is asked once a
// turn, early: the object looks at its own deadline and arms again.
//
// T needs a member 'ListHook timer_hook' and 'TimePoint timer_armed_for', which is kNever while it is not on
// the wheel.
template <class T>
class TimerWheel {
 public:
  explicit TimerWheel(TimePoint now) : current_(tick_of(now)) {}

  // Makes sure that the object is asked no later than `deadline`; an earlier appointment stands.
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

  // Calls expired(object) for each whose appointment has come; it may arm again.
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

  // When advance() next has something to do; kNever when the wheel is empty. Asked for each message of an
  // application that is about to leave its shard to the engine thread, and mostly about the same moment.
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
  mutable int64_t next_ = kNone;  // the first that is occupied behind current_
  std::array<List, kSlots> slots_;
  std::array<uint64_t, kSlots / 64> occupied_{};  // may say "occupied" of a slot whose objects were cancelled
};

}  // namespace verbena::engine
