// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "adapter/engine/processor_demand.h"
#include "base/time.h"

namespace verbena::engine {

// Decides whether a thread that has served a packet busy-polls for the next one for a while (asks), instead
// of sleeping until it arrives: to wake a thread takes longer than the packet itself. The time for polling
// adapts like KVM's halt_poll_ns: it grows while packets follow each other closely, and drops to zero when
// one comes late. Polling without a result takes only a small part of the time. Pure. One thread at a time.
class HaltPolling {
 public:
  // The longest time to poll for one packet.
  static constexpr Duration kLimit = std::chrono::microseconds(50);
  static constexpr Duration kFirstWindow = std::chrono::microseconds(10);
  // The time that waking a thread takes. A packet for which the thread slept is assumed to have come this
  // much earlier.
  static constexpr Duration kWaking = std::chrono::microseconds(20);
  // Polling without a result may take 1/kVainPart of all time. Up to kMaxCredit may be saved up.
  static constexpr int64_t kVainPart = 16;
  static constexpr Duration kMaxCredit = std::chrono::milliseconds(1);
  // How long polling is barred after other threads wanted the processor. The bar doubles each time, up to
  // kMaxBar. After kPeaceInBars bars without such demand, it starts from the first bar again. A bar is at
  // least kBarByLost times as long as others had the processor.
  static constexpr Duration kFirstBar = std::chrono::milliseconds(1);
  static constexpr Duration kMaxBar = std::chrono::milliseconds(256);
  static constexpr int kPeaceInBars = 8;
  static constexpr int kBarByLost = 8;
  static constexpr Duration kMaxBarByLost = std::chrono::seconds(1);  // the thread may just have been stopped
  // kWhile: polling is barred when all checks for this long have shown demand for processors. kLatestAgain:
  // after a longer gap between two checks, this time starts again.
  static constexpr Duration kWhile = std::chrono::microseconds(300);
  static constexpr Duration kLatestAgain = std::chrono::microseconds(900);

  // `first_bar` is 0 for a thread that busy-polls only to get its own event sooner. Demand then ends polling
  // for one packet only, and bars none later. Lost time still bars polling.
  explicit HaltPolling(Duration first_bar = kFirstBar) : first_bar_(first_bar) {}

  // Packets were found. Called before rests().
  void served(TimePoint now) {
    if (rests_since_ == kNotYet) return;
    const Duration gap = now - rests_since_;
    if (gap > kLimit + (asking_ ? Duration::zero() : kWaking)) {
      window_ = {};
    } else if (gap > window_) {
      window_ = std::clamp(window_ * 2, kFirstWindow, kLimit);
    }
  }

  // An event came by a route that is not polled, so polling would find nothing.
  void served_by_others() {
    window_ = {};
    asking_ = false;
  }

  // A visit has ended and no work is left. `found`: it found packets.
  void rests(TimePoint now, bool found) {
    if (found) {
      rests_since_ = now;
      credit_ = std::min(kMaxCredit, credit_ + (now - credited_at_) / kVainPart);
      credited_at_ = now;
      asking_ = window_ > Duration::zero() && credit_ >= window_ && now >= barred_until_;
    } else if (asking_ && now - rests_since_ >= window_) {
      credit_ -= now - rests_since_;
      asking_ = false;
    }
  }

  // The thread has busy-polled and noticed this demand for processors.
  void asked_on(TimePoint now, const Demand& demand) {
    if (!demand.looked) return;
    if (demand.wanted) {
      gives_way(now, demand.lost);
    } else {
      has_room();
    }
  }
  // No other thread wants the processors, as a check while polling has shown.
  void has_room() { wanted_since_ = kNotYet; }
  // Other threads want the processors. `lost`: how long they had this thread's processor. If it is 0, polling
  // ends only for this packet, unless all checks for kWhile have shown demand. A single check may count a
  // thread that this very packet has woken, and that soon sleeps again or finds a free processor.
  void gives_way(TimePoint now, Duration lost) {
    if (asking_) credit_ -= std::min(now - rests_since_, window_);
    asking_ = false;
    if (lost == Duration::zero() && !wanted_for_a_while(now)) return;
    wanted_since_ = kNotYet;
    const bool peace = now - barred_until_ > kPeaceInBars * bar_;
    bar_ = peace ? first_bar_ : std::min(bar_ * 2, kMaxBar);
    barred_until_ = now + std::max(bar_, std::min(kBarByLost * lost, kMaxBarByLost));
  }

  void stops() { asking_ = false; }

  bool asks() const { return asking_; }
  // Returns whether polling is over. It may end by time even if rests() was not called, because the shard was
  // busy.
  bool is_over(TimePoint now) const { return !asking_ || now - rests_since_ >= window_; }

 private:
  static constexpr TimePoint kNotYet = TimePoint::min();

  bool wanted_for_a_while(TimePoint now) {
    if (wanted_since_ == kNotYet || now - looked_at_ > kLatestAgain) wanted_since_ = now;
    looked_at_ = now;
    return now - wanted_since_ >= kWhile;
  }

  TimePoint rests_since_ = kNotYet;  // since a packet was served
  Duration window_{};
  bool asking_ = false;
  Duration credit_ = kMaxCredit;
  TimePoint credited_at_{};
  Duration first_bar_;
  Duration bar_ = first_bar_;
  TimePoint barred_until_{};
  TimePoint wanted_since_ = kNotYet;  // at every look since, the processors were wanted
  TimePoint looked_at_{};
};

}  // namespace verbena::engine
