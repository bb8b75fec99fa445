// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include <unistd.h>

namespace verbena {

using clock = std::chrono::steady_clock;
using duration = clock::duration;
using time_point = clock::time_point;

namespace detail {

// Owns a file descriptor, and closes it when the object is destroyed. -1: none.
class descriptor {
 public:
  descriptor() = default;
  explicit descriptor(int fd) : fd_(fd) {}
  descriptor(descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  descriptor& operator=(descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

// Throw std::system_error if a system call has returned -1. checked() returns the descriptor that the call
// has made.
inline void check(int returned) {
  if (returned < 0) throw std::system_error(errno, std::generic_category(), "prepare an event loop");
}
inline descriptor checked(int fd) {
  check(fd);
  return descriptor(fd);
}

class timers;

// Calls a function at a point in time, unless the timer is destroyed or stopped before. A timer for each
// operation is cheap: start() allocates memory only when the loop has more timers than ever before, or for a
// function with large captures.
class timer {
 public:
  timer() = default;
  timer(const timer&) = delete;
  timer& operator=(const timer&) = delete;
  ~timer() { stop(); }
  // Starts the timer, or starts it again. timers::run() calls `on_time`. REQUIRES: `all` lives as long as the
  // timer runs
  inline void start(timers& all, time_point when, std::function<void()> on_time);
  inline void stop();
  bool is_running() const { return place_ != kNowhere; }

 private:
  friend class timers;
  static constexpr std::size_t kNowhere = ~std::size_t{0};

  timers* all_ = nullptr;
  time_point when_{};
  std::function<void()> on_time_;
  std::size_t place_ = kNowhere;
};

// The running timers of a loop: a binary heap, with the earliest first.
class timers {
 public:
  // Returns the time of the earliest timer, or nothing if none runs.
  std::optional<time_point> next() const {
    return heap_.empty() ? std::nullopt : std::optional(heap_.front()->when_);
  }
  // Calls the functions of the timers that are due, and returns whether there were any.
  bool run(time_point now) {
    bool any = false;
    while (!heap_.empty() && heap_.front()->when_ <= now) {
      timer& due = *heap_.front();
      remove(due);
      any = true;
      const std::function<void()> on_time = std::move(due.on_time_);
      on_time();  // may destroy the timer
    }
    return any;
  }

 private:
  friend class timer;
  void add(timer& one) {
    heap_.push_back(&one);
    one.place_ = heap_.size() - 1;
    sift(one.place_);
  }
  void remove(timer& one) {
    const std::size_t at = std::exchange(one.place_, timer::kNowhere);
    timer* const last = heap_.back();
    heap_.pop_back();
    if (last == &one) return;
    heap_[at] = last;
    last->place_ = at;
    sift(at);
  }
  bool is_before(std::size_t a, std::size_t b) const { return heap_[a]->when_ < heap_[b]->when_; }
  void swap(std::size_t a, std::size_t b) {
    std::swap(heap_[a], heap_[b]);
    heap_[a]->place_ = a;
    heap_[b]->place_ = b;
  }
  // Moves a timer up or down until its parent is earlier and its children are later.
  void sift(std::size_t at) {
    for (; at > 0 && is_before(at, (at - 1) / 2); at = (at - 1) / 2) swap(at, (at - 1) / 2);
    for (;;) {
      std::size_t least = at;
      for (const std::size_t child : {2 * at + 1, 2 * at + 2}) {
        if (child < heap_.size() && is_before(child, least)) least = child;
      }
      if (least == at) return;
      swap(at, least);
      at = least;
    }
  }

  std::vector<timer*> heap_;
};

inline void timer::start(timers& all, time_point when, std::function<void()> on_time) {
  stop();
  all_ = &all;
  when_ = when;
  on_time_ = std::move(on_time);
  all_->add(*this);
}

inline void timer::stop() {
  if (is_running()) all_->remove(*this);
}

}  // namespace detail
}  // namespace verbena
