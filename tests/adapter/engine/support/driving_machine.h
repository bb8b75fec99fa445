// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/time.h"

namespace verbena::engine {

// A simulated machine with a few processors and virtual time. Its scheduler approximates Linux's: a thread
// that wakes up gets an idle processor after a delay, or replaces the thread that has run longest. Threads
// that do not sleep take turns of 3 ms.
class Machine {
 public:
  static constexpr Duration kTick{250};
  static constexpr Duration kSlice = std::chrono::milliseconds(3);
  static constexpr Duration kWakeOnIdleProcessor = std::chrono::microseconds(12);
  static constexpr Duration kWakeOnBusyProcessor = std::chrono::microseconds(2);

  class Thread {
   public:
    explicit Thread(Machine& machine) : machine_(machine) {
      machine.threads_.push_back(this);
      machine.queue_.push_back(this);
    }
    Thread(const Thread&) = delete;
    Thread& operator=(const Thread&) = delete;
    virtual ~Thread() {
      for (auto* list : {&machine_.threads_, &machine_.queue_, &machine_.running_}) std::erase(*list, this);
    }

    // Does the thread's next action and returns the processor time that it takes.
    virtual Duration step(TimePoint now) = 0;

    // Call it in step(): the thread sleeps until `moment` or wake().
    void sleep_until(TimePoint moment) {
      state_ = State::kAsleep;
      wakes_at_ = moment;
    }
    // Call it in step(): gives the processor to another thread that waits for one.
    void yield() { yields_ = true; }
    void wake(TimePoint now) {
      if (state_ == State::kAsleep) wakes_at_ = std::min(wakes_at_, now);
    }
    bool asleep() const { return state_ == State::kAsleep; }
    Duration used() const { return used_; }

   private:
    friend class Machine;
    enum class State : uint8_t { kWaits, kRuns, kAsleep };

    Machine& machine_;
    State state_ = State::kWaits;
    bool yields_ = false;
    TimePoint wakes_at_{};
    Duration left_{};  // remaining time of the current step
    Duration turn_{};  // time on its processor so far
    Duration used_{};
  };

  explicit Machine(int processors) : processors_(processors) {}

  TimePoint now() const { return now_; }
  // The number of threads that run or wait for a processor.
  int runnable() const {
    return static_cast<int>(std::count_if(threads_.begin(), threads_.end(),
                                          [](const Thread* thread) { return !thread->asleep(); }));
  }
  int processors() const { return processors_; }

  void run_for(Duration duration) {
    for (const TimePoint end = now_ + duration; now_ < end; now_ += kTick) {
      wake_sleepers();
      end_turns();
      assign();
      for (size_t i = running_.size(); i-- > 0;) run(*running_[i]);
    }
  }

 private:
  using State = Thread::State;

  void wake_sleepers() {
    for (Thread* thread : threads_) {
      if (thread->state_ != State::kAsleep || thread->wakes_at_ > now_) continue;
      thread->state_ = State::kWaits;
      const bool has_room = static_cast<int>(running_.size()) < processors_;
      thread->left_ = has_room ? kWakeOnIdleProcessor : kWakeOnBusyProcessor;
      if (!has_room) {
        stop(**std::max_element(running_.begin(), running_.end(),
                                [](const Thread* a, const Thread* b) { return a->turn_ < b->turn_; }));
      }
      start(*thread);
    }
  }

  void end_turns() {
    for (size_t i = running_.size(); i-- > 0;) {
      Thread& thread = *running_[i];
      const bool gives_up = std::exchange(thread.yields_, false) || thread.turn_ >= kSlice;
      if (!gives_up) continue;
      thread.turn_ = {};
      if (!queue_.empty()) stop(thread);
    }
  }

  void assign() {
    while (!queue_.empty() && static_cast<int>(running_.size()) < processors_) {
      start(*queue_.front());
      queue_.erase(queue_.begin());
    }
  }

  void start(Thread& thread) {
    thread.state_ = State::kRuns;
    thread.turn_ = {};
    running_.push_back(&thread);
  }
  void stop(Thread& thread) {
    std::erase(running_, &thread);
    thread.state_ = State::kWaits;
    queue_.push_back(&thread);
  }

  void run(Thread& thread) {
    thread.used_ += kTick;
    thread.turn_ += kTick;
    thread.left_ -= kTick;
    if (thread.left_ > Duration::zero()) return;
    thread.left_ += thread.step(now_);
    if (thread.asleep()) {
      thread.left_ = {};
      std::erase(running_, &thread);
    }
  }

  const int processors_;
  TimePoint now_{std::chrono::hours(1)};
  std::vector<Thread*> threads_;
  std::vector<Thread*> running_;
  std::vector<Thread*> queue_;  // waiting for a processor, longest first
};

}  // namespace verbena::engine
