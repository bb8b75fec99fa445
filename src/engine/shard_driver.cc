// SPDX-License-Identifier: Apache-2.0
// Who drives a shard when: the engine thread's side, and what happens around sleep, exit and fork().
#include <algorithm>
#include <utility>

#include "engine/driving.h"
#include "engine/shard.h"

namespace verbena::engine {
namespace {

// Longer than anybody holds the lock, unless it is the very thread that forks or exits, in a signal's
// handler.
constexpr Duration kPatience = std::chrono::milliseconds(100);

}  // namespace

void Shard::expect_sleep() {
  enter();
  if (!abandoned_ && sleeper_ != nullptr) {
    quiet_polls_ = 0;
    if (!std::exchange(listening_, true)) sleeper_->listen(true);
  }
  leave(Gathering::kNo);
}

// ---- the engine thread

Shard::EngineView Shard::run_engine() {
  enter();
  EngineView view;
  engine_told_ = false;
  if (abandoned_) {
    leave(Gathering::kNo);
    return view;
  }
  if (application_polls()) {
    view.wake_at = engine_wakes_at_ = now_ + look_interval_;
    look_interval_ = std::min(look_interval_ * 2, kLookInterval);
    leave(Gathering::kNo);
    return view;
  }
  do {
    view = drive();
    lock_.unlock_and_look();
  } while (doorbells_.any() && enter_if_free());
  return view;
}

// Progress without the application.
Shard::EngineView Shard::drive() {
  bool received_any = false;
  for (int round = 0; round < kEngineRounds; ++round) {
    answer_doorbells();
    const uint32_t received = receive(kReceiveBudget);
    received_any |= received > 0;
    run_timers(now_);
    transmit_ready(Acknowledgements::kSend, Gathering::kNo);
    if (received == 0 && (ready_.empty() || port_full_)) break;
    now_ = MonotonicClock::now();
  }
  const bool was_listening = std::exchange(listening_, true);
  // It waits for its memory or an event, and calls no verb meanwhile.
  if (!polled_since_last_round_ && (received_any || !was_listening)) quiet_polls_ = 0;
  // Packets waited while nobody listened: the application had not really taken over.
  if (received_any && !was_listening)
    polls_to_take_over_ = std::min(polls_to_take_over_ * 2, kMostPollsToTakeOver);
  if (sleeper_ != nullptr) sleeper_->listen(true);

  EngineView view;
  view.wake_at = std::min(timers_.next(), alarms_.next());
  if (port_full_) {
    view.send_fd = port_->send_fd();
    if (view.send_fd < 0) view.wake_at = std::min(view.wake_at, now_ + kFullPortInterval);
  } else if (!ready_.empty()) {
    view.wake_at = now_;
  }
  engine_wakes_at_ = view.wake_at;
  paced_until_ = kNever;
  return view;
}

// Whether the application has taken over and is still at it.
bool Shard::application_polls() {
  const bool grows = std::exchange(polls_seen_, polls_) != polls_;
  polled_since_last_round_ = grows;
  if (listening_ || !grows) {
    steady_looks_ = 0;
    return false;
  }
  if (++steady_looks_ >= kSteadyLooks) {
    steady_looks_ = 0;
    polls_to_take_over_ = std::max(kPollsToTakeOver, polls_to_take_over_ / 2);
  }
  return true;
}

void Shard::flush_at_exit() {
  if (!lock_.try_lock_for(kPatience)) return;
  now_ = MonotonicClock::now();
  if (!abandoned_) release_acknowledgements();
  leave(Gathering::kNo);
}

// ---- fork()

bool Shard::before_fork() {
  if (!lock_.try_lock_for(kPatience)) return false;
  now_ = MonotonicClock::now();
  return true;
}

void Shard::abandon() {
  abandoned_ = true;
  for (Input& input : inputs_) input.abandon();
  lock_.unlock();  // whoever held it, if not we, is a thread that is not in this process
}

}  // namespace verbena::engine
