// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "adapter/engine/processor_demand.h"
#include "base/time.h"

namespace verbena::engine {

// Whether a thread that has served a packet asks for the next one for a while, in place of sleeping until it
// arrives: to be woken takes longer than the packet itself. How long it asks adapts to what that
// brings, as KVM's halt_poll_ns does: it grows while packets follow each other closely and ends when one does
// not. In vain it asks only a small part of the time. Pure; one thread's at a time.
class HaltPolling {
 public:
  // Longer than this it never asks for one packet.
  static constexpr Duration kLimit = std::chrono::microseconds(50);
  static constexpr Duration kFirstWindow = std::chrono::microseconds(10);
  // What it takes to wake a thread: a packet that was slept for has come earlier by that.
  static constexpr Duration kWaking = std::chrono::microseconds(20);
  // The part of all time that may be spent on asking in vain, and what of it may be saved up.
  static constexpr int64_t kVainPart = 16;
  static constexpr Duration kMaxCredit = std::chrono::milliseconds(1);
  // For so long it does not ask after somebody wanted the processor: twice as long each time, until there has
  // been peace for a multiple of that. And the longer, the longer others had the processor.
  static constexpr Duration kFirstBar = std::chrono::milliseconds(1);
  static constexpr Duration kMaxBar = std::chrono::milliseconds(256);
  static constexpr int kPeaceInBars = 8;
  static constexpr int kBarByLost = 8;
  static constexpr Duration kMaxBarByLost = std::chrono::seconds(1);  // it may just have been stopped
  // What counts as a while, and after how long without a look it begins again.
  static constexpr Duration kWhile = std::chrono::microseconds(300);
  static constexpr Duration kLatestAgain = std::chrono::microseconds(900);

  // `first_bar`: none, where the thread would sleep for nobody's sake but its own. Then it gives way for one
  // packet at a time, and for what it has lost.
  explicit HaltPolling(Duration first_bar = kFirstBar) : first_bar_(first_bar) {}

  // Packets were found. Before rests().
  void served(TimePoint now) {
    if (rests_since_ == kNotYet) return;
    const Duration gap = now - rests_since_;
    if (gap > kLimit + (asking_ ? Duration::zero() : kWaking)) {
      window_ = {};
    } else if (gap > window_) {
      window_ = std::clamp(window_ * 2, kFirstWindow, kLimit);
    }
  }

  // What the thread waited for has come by another way, of which asking finds nothing.
  void served_by_others() {
    window_ = {};
    asking_ = false;
  }

  // Nothing is left to do, after a visit that found packets, or not.
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

  // It asked on, and this is what it noticed of the processors.
  void asked_on(TimePoint now, const Demand& demand) {
    if (!demand.looked) return;
    if (demand.wanted) {
      gives_way(now, demand.lost);
    } else {
      has_room();
    }
  }
  // It looked, while it asked, whether others want the processors: they do not.
  void has_room() { wanted_since_ = kNotYet; }
  // They do; `lost` is how long they have taken this thread's. Where they have taken none it ends for this
  // time only, unless they want them at every look for a while: a thread that this very packet has woken is
  // gone by then, or has a processor.
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
  // True also when the time is up and rests() was never called: the shard was busy all the time.
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
