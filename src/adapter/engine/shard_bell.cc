// SPDX-License-Identifier: Apache-2.0
// A thread that sleeps at a shard's bell until it has an event: what the engine thread would do for it.
#include "adapter/engine/driving.h"
#include "adapter/engine/shard.h"

namespace verbena::engine {

Shard::AtBell Shard::goes_to_bell(const queues::EventChannel::Waiter& waiter) {
  enter();
  // The thread itself, if it left by a jump out of a signal's handler.
  const bool is_free = !at_bell_ || is_at_bell();
  AtBell answer = AtBell::kNot;
  if (is_free && !abandoned_ && sleeper_ != nullptr && bell() != nullptr) {
    at_bell_ = ::pthread_self();
    policy_.comes_to_bell();
    answer = wait_at_bell(waiter);
  }
  leave(Gathering::kNo);
  return is_served_on_the_way(answer, waiter) ? looks_at_bell(waiter) : answer;
}

Shard::AtBell Shard::looks_at_bell(const queues::EventChannel::Waiter& waiter, const Demand& demand) {
  AtBell answer;
  do {
    enter();
    policy_.asked_on_at_bell(now_, demand);
    answer = is_at_bell() ? wait_at_bell(waiter) : AtBell::kNot;
    leave(Gathering::kNo);
  } while (is_served_on_the_way(answer, waiter));
  return answer;
}

// Who lets go of the lock does what others have left for it. That may bring the very event, and a thread does
// not ring for itself.
bool Shard::is_served_on_the_way(AtBell answer, const queues::EventChannel::Waiter& waiter) {
  return answer == AtBell::kSleeps && waiter.is_served();
}

void Shard::gives_bell_up() {
  enter();
  if (is_at_bell()) {
    at_bell_.reset();
    policy_.gives_bell_up();
    if (policy_.engine_drives() && listen(true)) sleeper_->wake();
  }
  leave(Gathering::kNo);
}

bool Shard::is_at_bell() const {
  return !abandoned_ && at_bell_ && ::pthread_equal(*at_bell_, ::pthread_self()) != 0;
}

// With the lock held. What a waiter that is served has not acknowledged yet waits for what it says next.
Shard::AtBell Shard::wait_at_bell(const queues::EventChannel::Waiter& waiter) {
  for (int round = 0; round < kEngineRounds; ++round) {
    answer_doorbells();
    const uint32_t received = receive(kReceiveBudget, Visitor::kAtBell);
    run_timers(now_);  // of a thread that asks on the engine thread takes no notice until it looks
    if (waiter.is_served()) {
      at_bell_.reset();
      policy_.served_at_bell(now_, received > 0);
      // Who is served at first sight has not taken the bell from the engine thread, which goes on to hear it.
      if (policy_.engine_has_bell()) return AtBell::kServed;
      if (const auto time = policy_.leaves_bell(now_)) sleeper_->come_by(*time);
      listen_by_memory();
      return AtBell::kServed;
    }
    transmit_ready(Acknowledgements::kSend, Gathering::kNo);
    if (received > 0 || !ready_.empty()) continue;
    if (policy_.asks_at_bell(now_)) return AtBell::kAsks;
    if (!takes_bell()) return AtBell::kSleeps;
  }
  // Others get the lock, and then we come back. From here on the bell is rung for us: the engine thread must
  // not take that for its own.
  (void)takes_bell();
  bell()->ring();
  return AtBell::kSleeps;
}

// The thread is about to sleep at the bell. True: something is there already.
bool Shard::takes_bell() {
  const bool had_bell = policy_.engine_has_bell();
  if (policy_.sleeps_at_bell()) return listen(true);
  if (had_bell) sleeper_->hear_bell(false);
  return listen_by_memory();
}

// As the bell is heard, or not.
bool Shard::listen_by_memory() {
  bool is_something_there = false;
  for (Input& input : inputs_) {
    if (input.bell() != nullptr) is_something_there |= input.listen(!policy_.is_away_from_bell());
  }
  return is_something_there;
}

}  // namespace verbena::engine
