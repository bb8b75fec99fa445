// SPDX-License-Identifier: Apache-2.0
// Who drives a shard when: the engine thread's side, and what happens around sleep, exit and fork().
#include <algorithm>
#include <utility>

#include "adapter/engine/driving.h"
#include "adapter/engine/shard.h"
#include "adapter/memory/guarded.h"

namespace verbena::engine {
namespace {

// Longer than anybody holds the lock, unless it is the very thread that forks or exits, in a signal's
// handler.
constexpr Duration kPatience = std::chrono::milliseconds(100);
constexpr Duration kSurroundingsInterval = std::chrono::milliseconds(1);

}  // namespace

void Shard::expect_sleep() {
  enter();
  if (!abandoned_ && policy_.expects_sleep() && listen(true)) sleeper_->wake();
  leave(Gathering::kNo);
}

// ---- the engine thread

// The engine thread does not wait for the lock. The thread that holds it is at work: most likely the
// application's, polling. Spinning would take the processor from the thread that is to let go. Yielding would
// cost the engine thread its turns for milliseconds. Instead the holder does what cannot wait: it listens for
// the next packet.
bool Shard::engine_enters() {
  if (!enter_if_free()) {
    if (policy_.asks(clock_.exact())) return false;
    engine_waits_.store(true, std::memory_order_seq_cst);
    if (!enter_if_free()) return false;
  }
  engine_waits_.store(false, std::memory_order_relaxed);
  return true;
}

Shard::EngineView Shard::run_engine(const Demand& demand) {
  EngineView view;
  if (!engine_enters()) {
    const TimePoint now = clock_.exact();
    view.asks = policy_.asks(now);
    if (!view.asks) view.wake_at = policy_.finds_shard_busy(now);
    return view;
  }
  policy_.asked_on(now_, demand);
  if (abandoned_) {
    leave(Gathering::kNo);
    return view;
  }
  if (const auto next_look = policy_.comes(now_)) {
    view.wake_at = *next_look;
    leave(Gathering::kNo);
    return view;
  }
  // Who asks on has not been woken by a descriptor: as for an application that polls, most looks find nothing
  // and are over at once, and ports and sockets are asked now and then.
  const Visitor visitor = demand.looked ? Visitor::kPoller : Visitor::kOther;
  if (visitor == Visitor::kPoller && finds_nothing() && policy_.asks(now_)) {
    view.asks = true;
    let_go();
    if (!doorbells_.any() || !enter_if_free()) return view;
  }
  do {
    view = drive(visitor);
    let_go();
  } while (doorbells_.any() && enter_if_free());
  return view;
}

// Progress without the application.
Shard::EngineView Shard::drive(Visitor visitor) {
  EngineView view;
  if (visitor == Visitor::kOther) {
    for (Input& input : inputs_) input.on_woken();
  }
  bool holds_acknowledgements = false;
  for (int round = 0; round < kEngineRounds; ++round) {
    answer_doorbells();
    const uint32_t received = receive(kReceiveBudget, visitor);
    policy_.served(now_, received);
    run_timers(now_);
    const bool holds = policy_.awaits_reply(now_);
    transmit_ready(holds ? Acknowledgements::kHold : Acknowledgements::kSend, Gathering::kNo);
    holds_acknowledgements = holds && !acknowledging_.empty();
    now_ = clock_.now();
    if (application_waits_.exchange(false, std::memory_order_relaxed)) policy_.application_waited(now_);
    if (received == 0 && ready_.empty()) break;
  }

  many_came_ = false;     // what they are acknowledged by has gone, or waits for a reply here, too
  paced_until_ = kNever;  // who paused has a timer, and the engine thread comes for it
  DrivingPolicy::Pending left = pending();
  left.acknowledgements = holds_acknowledgements;
  if (ports_.any_full()) {
    view.send_fd = ports_.send_fd();
    left.exact = std::min(left.exact, now_ + kFullPortInterval);
  }
  const DrivingPolicy::Rest rest = policy_.rests(now_, left, timers_.next());
  view.wake_at = rest.comes_at;
  view.asks = rest.asks;
  if (sleeper_ != nullptr && !view.asks && listen(true)) view.wake_at = now_;
  return view;
}

void Shard::flush_at_exit() {
  if (!lock_.try_lock_for(kPatience)) return;
  current_ = this;
  now_ = clock_.now();
  if (!abandoned_) release_acknowledgements();
  leave(Gathering::kNo);
}

// ---- what the application may have done to us

// Descriptors that it has closed, handlers that it has put over ours. To ask takes some system calls. A
// thread that comes after a while asks before it reads or writes anything; one that is busy has a
// millisecond.
void Shard::look_around() {
  next_look_ = now_ + kSurroundingsInterval;
  memory::check_guard();
  if (abandoned_) return;
  show_some_progress();
  if (sleeper_ == nullptr) return;
  bool is_whole = sleeper_->is_whole() && ports_.is_whole();
  for (const Input& input : inputs_) is_whole &= input.is_whole();
  if (!is_whole) lose_descriptors(true);
}

void Shard::lose_descriptors(bool is_first) {
  abandoned_ = true;
  bell_.store(nullptr, std::memory_order_release);
  lost_.store(true, std::memory_order_release);
  if (sleeper_ != nullptr) sleeper_->on_loss(is_first);
}

// What is posted to a QP that has failed with its shard: nobody else flushes it.
void Shard::flush_if_lost(transport::QueuePair& qp) {
  if (!is_lost() || qp.state() != IBV_QPS_ERR) return;
  qp.enter(IBV_QPS_ERR);
  qp.answer_lost_completions();
}

// ---- fork()

bool Shard::before_fork() {
  if (!lock_.try_lock_for(kPatience)) return false;
  current_ = this;
  now_ = clock_.now();
  return true;
}

void Shard::abandon() {
  abandoned_ = true;
  if (bell_demand_) bell_demand_->abandon();
  for (Input& input : inputs_) input.abandon();
  current_ = nullptr;
  lock_.free_in_child();  // if not held by us, then by a thread that is not in this process
}

}  // namespace verbena::engine
