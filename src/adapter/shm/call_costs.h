// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include <sys/types.h>

#include "base/foreign_socket.h"
#include "base/processor_clock.h"
#include "base/time.h"

namespace verbena::engine {

// Limits the time that this process spends in system calls on the sockets of another user's processes.
// Sending or removing a message wakes all epoll(7) watches of the socket's other end, within the call. The
// other process may have any number of watches: with 150,000 of them, each call takes 50 ms. So the other
// process decides how long a call takes, and often how many calls there are.
//
// A leaky bucket: calls may take a hundredth of the time, and some milliseconds at once. Beyond that, no call
// is made until enough has leaked. A call that this program causes, because it sends something or is about to
// sleep, is free up to kNormal, and the rest counts half: interrupts make some of these calls long.
//
// A call may also take long because another thread had the CPU. So for kWindow after a long call, calls are
// measured by processor time (ProcessorClock). This is not done always, because reading that clock is a
// system call.
//
// Has no clock: the caller measures. One thread at a time.
class CallCosts {
 public:
  // The process that causes a call: this one, or the other one. The other one can cause any number of calls.
  enum class Cause : uint8_t { kOurs, kTheirs };

  // A call takes a few microseconds.
  static constexpr Duration kNormal = std::chrono::microseconds(20);
  static constexpr Duration kBurst = std::chrono::milliseconds(5);
  static constexpr int kShare = 100;
  static constexpr int kShareOfOurs = 50;
  // Calls are measured by processor time for this long after one that took long.
  static constexpr Duration kWindow = std::chrono::seconds(60);

  // Returns whether the next call must be measured by processor time.
  bool is_suspect(TimePoint now) const { return now < suspect_until_; }
  // Returns the time from which a call may be made. Calls that the other process causes must wait at half the
  // debt at which our calls must wait. So calls that a hostile process causes leave room for our calls, which
  // wake an honest process of the same user.
  TimePoint allowed_from(Cause cause) const {
    return empty_at_ - (cause == Cause::kOurs ? 2 : 1) * kBurst * kShare;
  }
  // Counts a call that ended at `now` and took `duration`. `by_processor` says that `duration` is processor
  // time; otherwise at most kNormal of it counts, because another thread may have had the CPU. After a call
  // longer than kNormal, later calls must be measured by processor time (is_suspect()).
  void note(Duration duration, bool by_processor, Cause cause, TimePoint now) {
    if (duration > kNormal) suspect_until_ = std::max(suspect_until_, now + kWindow);
    if (!by_processor) duration = std::min(duration, kNormal);
    const bool is_ours = cause == Cause::kOurs;
    const Duration counted = is_ours ? duration - kNormal : duration;
    if (counted <= Duration::zero()) return;
    empty_at_ = std::max(empty_at_, now) + counted * (is_ours ? kShareOfOurs : kShare);
  }
  // Returns whether this account may be deleted: it owes no time and suspects no calls.
  bool is_forgettable(TimePoint now) const { return now >= empty_at_ && !is_suspect(now); }

 private:
  TimePoint suspect_until_{};
  TimePoint empty_at_{};  // when the bucket is empty if nothing is added
};

// The clocks that calls are measured by.
class CallClock {
 public:
  virtual ~CallClock() = default;
  virtual TimePoint now() const { return MonotonicClock::now(); }
  virtual TimePoint processor_time() const { return ProcessorClock::now(); }
  virtual std::optional<Duration> wait_for_processor() const { return verbena::wait_for_processor(); }
};
inline const CallClock kCallClock;

// The accounts to which the time of calls on one channel's socket is added. `user` is shared by all channels
// to processes of one user. `guests` is shared by all guests, processes of which this program has not named a
// QP. It limits guests together, because one person may own thousands of user IDs. All calls for a guest
// count as caused by the guest.
struct CallAccounts {
  using Cause = CallCosts::Cause;

  std::shared_ptr<CallCosts> user = std::make_shared<CallCosts>();
  uid_t user_id = kUnknownUser;
  CallCosts* guests = nullptr;
  const bool* is_wanted = nullptr;  // whether this program has named the other process; null: it has
  const CallClock* clock = &kCallClock;
  // Called when a call has to wait until allowed_from(). May be null.
  const std::function<void()>* on_pause = nullptr;

  bool is_guest() const { return is_wanted != nullptr && !*is_wanted; }
  TimePoint allowed_from(Cause cause) const {
    if (!is_guest()) return user->allowed_from(cause);
    return std::max(user->allowed_from(Cause::kTheirs), guests->allowed_from(Cause::kTheirs));
  }
  bool allow(Cause cause) const { return clock->now() >= allowed_from(cause); }
  template <class Calls, class Counts>
  void measure(Cause cause, const Calls& calls, const Counts& counts) const {
    const TimePoint before = clock->now();
    const bool by_processor = user->is_suspect(before) || (is_guest() && guests->is_suspect(before));
    const TimePoint begun = by_processor ? clock->processor_time() : before;
    calls();
    const TimePoint now = clock->now();
    const Duration duration = (by_processor ? clock->processor_time() : now) - begun;
    if (!counts()) return;
    note(duration, by_processor, cause, now);
  }
  // Measures calls that may block because the other process holds locks of pages or files that the calls
  // need. So the elapsed time counts, less the time in which this thread waited for a CPU. If the kernel does
  // not tell that time, only processor time counts.
  template <class Calls>
  void measure_waits(const Calls& calls) const {
    // Outermost, so that no wait for a processor is missed.
    const auto waited_before = clock->wait_for_processor();
    const TimePoint begun = clock->processor_time();
    const TimePoint before = clock->now();
    calls();
    const TimePoint now = clock->now();
    Duration duration = clock->processor_time() - begun;
    const auto waited = clock->wait_for_processor();
    if (waited_before && waited) duration = now - before - (*waited - *waited_before);
    note(duration, true, Cause::kTheirs, now);
  }

 private:
  void note(Duration duration, bool by_processor, Cause cause, TimePoint now) const {
    user->note(duration, by_processor, is_guest() ? Cause::kTheirs : cause, now);
    if (is_guest()) guests->note(duration, by_processor, Cause::kTheirs, now);
  }
};

// The accounts of a channel. Those of its handshake are apart. The messages of a handshake have descriptors,
// and any user can make all such messages of the host long, by having many sockets in flight (unix_gc_lock in
// Linux's net/unix/garbage.c). Then new channels wait, but not the calls for open ones.
struct ChannelAccounts {
  CallAccounts handshake;
  CallAccounts open;

  // Returns the time from which a channel may be made.
  TimePoint allowed_from(CallCosts::Cause cause) const {
    return std::max(handshake.allowed_from(cause), open.allowed_from(cause));
  }
  bool allow(CallCosts::Cause cause) const { return open.clock->now() >= allowed_from(cause); }
};

}  // namespace verbena::engine
