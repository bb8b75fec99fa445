// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <stop_token>
#include <thread>

#include "commands/perf/clock.h"

namespace verbena::perf {

// The phases of a test of fixed duration: a margin, the part that counts, and another margin. A thread of
// this object goes from one phase to the next, so that the measuring loop reads no clock. Without start(), or
// if the duration is 0, all messages count and the test is never over.
class Phases {
 public:
  Phases(std::chrono::milliseconds duration, std::chrono::milliseconds margin)
      : counted_(duration - 2 * margin), margin_(margin), is_timed_(duration.count() != 0) {}

  // Begins the first margin, unless the duration is 0. Further calls do nothing.
  void start() {
    if (!is_timed_ || thread_.joinable()) return;
    phase_.store(Phase::kBefore, std::memory_order_relaxed);
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  }

  // Begins the first margin again. REQUIRES: is_over()
  void restart() {
    thread_ = {};
    start();
  }

  bool counts() const { return phase_.load(std::memory_order_relaxed) == Phase::kCounting; }
  bool is_over() const { return phase_.load(std::memory_order_relaxed) == Phase::kOver; }
  // When the part that counts began and ended, in ticks. REQUIRES: is_over()
  std::uint64_t began() const { return began_; }
  std::uint64_t ended() const { return ended_; }

 private:
  enum class Phase : std::uint8_t { kBefore, kCounting, kAfter, kOver };

  void run(const std::stop_token& stop) {
    wait(stop, margin_);
    began_ = ticks();
    phase_.store(Phase::kCounting, std::memory_order_relaxed);
    wait(stop, counted_);
    phase_.store(Phase::kAfter, std::memory_order_relaxed);
    ended_ = ticks();
    wait(stop, margin_);
    phase_.store(Phase::kOver, std::memory_order_release);
  }
  void wait(const std::stop_token& stop, std::chrono::milliseconds time) {
    std::unique_lock lock(mutex_);
    stopped_.wait_for(lock, stop, time, [] { return false; });
  }

  std::chrono::milliseconds counted_;
  std::chrono::milliseconds margin_;
  bool is_timed_;
  std::atomic<Phase> phase_ = Phase::kCounting;
  std::uint64_t began_ = 0;
  std::uint64_t ended_ = 0;
  std::mutex mutex_;
  std::condition_variable_any stopped_;
  std::jthread thread_;  // the last member: it uses the others
};

}  // namespace verbena::perf
