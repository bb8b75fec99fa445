// SPDX-License-Identifier: Apache-2.0
#include "adapter/engine/driving_policy.h"

#include <algorithm>
#include <utility>

namespace verbena::engine {
namespace {

// After so many polls without a packet the application's thread offers its processor to others, now and then.
constexpr uint32_t kIdlePolls = 64;
constexpr uint32_t kPollsPerYield = 8;

// The interval that has just been waited for, and doubles for the next time.
Duration next_of(Duration& interval, Duration longest = kLookInterval) {
  return std::exchange(interval, std::min(interval * 2, longest));
}

}  // namespace

// ---- the application's threads

void DrivingPolicy::enters(TimePoint now) {
  attendance_.enters(now);
  visit_ = Visit{};
}

DrivingPolicy::Polled DrivingPolicy::polled(TimePoint now, uint32_t received) {
  Polled verdict;
  verdict.takes_over = engine_drives() && attendance_.lasts(now) >= take_over_after_;
  if (verdict.takes_over) {
    engine_drives_ = false;
    look_interval_ = kFirstLook;
    if (is_away_from_bell()) bell_is_with_ = Hearer::kEngine;  // that thread polls by now
  }
  idle_polls_ = received > 0 ? 0 : idle_polls_ + 1;
  verdict.yields = idle_polls_ >= kIdlePolls && idle_polls_ % kPollsPerYield == 0;
  visit_ = Visit{verdict.yields, received};
  return verdict;
}

void DrivingPolicy::leaves(TimePoint now) {
  if (!visit_) return;
  attendance_.leaves(now, visit_->received, visit_->yields);
  visit_.reset();
}

TimePoint DrivingPolicy::holds_acknowledgements(TimePoint now) {
  const bool comes = halt_polling_.asks() || is_away_from_bell() || engine_comes_at_ <= now + kLongestAbsence;
  if (!engine_drives() || comes) return kNever;
  return engine_comes_at_ = now + kLongestAbsence;
}

bool DrivingPolicy::expects_sleep() {
  if (!engine_present_) return false;
  if (!is_away_from_bell()) attendance_.ends();
  return !std::exchange(engine_drives_, true);
}

// ---- the bell

bool DrivingPolicy::asks_at_bell(TimePoint now) {
  const bool comes = !std::exchange(rests_at_bell_, true);
  bell_polling_.rests(now, comes);
  // Who is rung for, or does not come from the bell, goes to sleep there first. And ports are the engine
  // thread's.
  if (!halt_polling_on_ || !is_away_from_bell() || !engine_drives()) bell_polling_.stops();
  if (!bell_polling_.asks()) return false;
  if (comes) attendance_.ends();  // as if it slept: what it does with its event is a visit of its own
  attendance_.waits(now);
  return true;
}

bool DrivingPolicy::sleeps_at_bell() {
  attendance_.ends();
  bell_is_with_ = Hearer::kThread;
  return !std::exchange(engine_drives_, true);
}

std::optional<TimePoint> DrivingPolicy::leaves_bell(TimePoint now) {
  attendance_.enters(now);
  attendance_.leaves(now, 0, false);
  bell_is_with_ = Hearer::kAway;
  if (engine_comes_at_ <= now + away_interval_) return std::nullopt;
  return engine_comes_at_ = now + away_interval_;
}

void DrivingPolicy::gives_bell_up() {
  attendance_.ends();
  bell_is_with_ = Hearer::kEngine;
}

// ---- the engine thread

TimePoint DrivingPolicy::finds_shard_busy(TimePoint now) {
  return now + next_of(busy_interval_);
}

std::optional<TimePoint> DrivingPolicy::comes(TimePoint now) {
  busy_interval_ = kFirstLook;
  engine_told_ = false;
  if (engine_drives_ || attendance_.is_over(now)) {
    steady_looks_ = 0;
    brought_something_ = false;
    return std::nullopt;
  }
  if (++steady_looks_ >= kSteadyLooks) {
    steady_looks_ = 0;
    take_over_after_ = std::max(kTakeOverAfter, take_over_after_ / 2);
  }
  halt_polling_.stops();
  engine_comes_at_ = now + next_of(look_interval_, kLongestLookInterval);
  return engine_comes_at_;
}

void DrivingPolicy::served(TimePoint now, uint32_t received) {
  if (received > 0 && !std::exchange(brought_something_, true)) halt_polling_.served(now);
  attendance_.is_given(now, received);
}

DrivingPolicy::Rest DrivingPolicy::rests(TimePoint now, const Pending& pending, TimePoint next_timer) {
  const bool drove_already = std::exchange(engine_drives_, true);
  // Packets waited while nobody listened: the application had not really taken over.
  if (brought_something_ && !drove_already) {
    take_over_after_ = std::min(take_over_after_ * 2, kMaxTakeOverAfter);
  }
  engine_comes_at_ = pending.now ? now : std::min(pending.exact, next_timer);
  if (pending.acknowledgements) engine_comes_at_ = std::min(engine_comes_at_, attendance_.near_until());
  if (is_away_from_bell()) {
    if (attendance_.is_over(now)) {
      // Packets waited while nobody heard the bell: next time it looks sooner.
      if (brought_something_) away_interval_ = kFirstLook;
      bell_is_with_ = Hearer::kEngine;
    } else {
      engine_comes_at_ = std::min(engine_comes_at_, now + next_of(away_interval_));
    }
  } else if (!engine_has_bell()) {
    next_of(away_interval_);  // it has come back, as expected
  }
  if (must_be_asked_) {
    if (brought_something_) ask_interval_ = kFirstLook;
    engine_comes_at_ = std::min(engine_comes_at_, now + next_of(ask_interval_));
  }
  halt_polling_.rests(now, brought_something_);
  // An application that is in and out of verbs finds what arrives itself, and sooner if nobody is in its way.
  if (!halt_polling_on_ || pending.port_full || !attendance_.is_over(now)) halt_polling_.stops();
  return {engine_comes_at_, halt_polling_.asks() && !pending.now};
}

}  // namespace verbena::engine
