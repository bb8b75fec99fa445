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
    attendance_.ends();
    if (!std::exchange(listening_, true)) sleeper_->listen(true);
  }
  leave(Gathering::kNo);
}

// ---- the engine thread

// Whoever has the lock is at work, most likely the application, polling. To wait for it would take the
// processor from the very thread that is to let go, or, with a yield, give up our own turns for milliseconds.
// So it does for us what cannot wait: hearing the next packet.
bool Shard::engine_enters() {
  if (!enter_if_free()) {
    engine_waits_.store(true, std::memory_order_seq_cst);
    if (!enter_if_free()) return false;
  }
  engine_waits_.store(false, std::memory_order_relaxed);
  return true;
}

Shard::EngineView Shard::run_engine() {
  EngineView view;
  if (!engine_enters()) {
    view.wake_at = clock_() + busy_interval_;
    busy_interval_ = std::min(busy_interval_ * 2, kLookInterval);
    return view;
  }
  busy_interval_ = kFirstLook;
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
    attendance_.is_given(now_, received);
    run_timers(now_);
    transmit_ready(Acknowledgements::kSend, Gathering::kNo);
    now_ = clock_();
    if (application_waits_.exchange(false, std::memory_order_relaxed)) attendance_.waits(now_);
    if (received == 0 && ready_.empty()) break;
  }
  const bool was_listening = std::exchange(listening_, true);
  // Packets waited while nobody listened: the application had not really taken over.
  if (received_any && !was_listening) take_over_after_ = std::min(take_over_after_ * 2, kMostTakeOverAfter);
  if (sleeper_ != nullptr) sleeper_->listen(true);

  EngineView view;
  view.wake_at = std::min(timers_.next(), alarms_.next());
  if (ports_.any_full()) {
    view.send_fd = ports_.send_fd();
    if (view.send_fd < 0) view.wake_at = std::min(view.wake_at, now_ + kFullPortInterval);
  }
  if (!ready_.empty()) view.wake_at = now_;
  if (ports_.must_be_asked() && qp_count_ > 0) view.wake_at = std::min(view.wake_at, now_ + kLookInterval);
  engine_wakes_at_ = view.wake_at;
  paced_until_ = kNever;
  return view;
}

// Whether the application has taken over and is still at it.
bool Shard::application_polls() {
  if (listening_ || attendance_.is_over(now_)) {
    steady_looks_ = 0;
    return false;
  }
  if (++steady_looks_ >= kSteadyLooks) {
    steady_looks_ = 0;
    take_over_after_ = std::max(kTakeOverAfter, take_over_after_ / 2);
  }
  return true;
}

void Shard::flush_at_exit() {
  if (!lock_.try_lock_for(kPatience)) return;
  now_ = clock_();
  if (!abandoned_) release_acknowledgements();
  leave(Gathering::kNo);
}

// ---- fork()

bool Shard::before_fork() {
  if (!lock_.try_lock_for(kPatience)) return false;
  now_ = clock_();
  return true;
}

void Shard::abandon() {
  abandoned_ = true;
  for (Input& input : inputs_) input.abandon();
  lock_.unlock();  // whoever held it, if not we, is a thread that is not in this process
}

}  // namespace verbena::engine
