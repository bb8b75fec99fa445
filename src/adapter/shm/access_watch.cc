// SPDX-License-Identifier: Apache-2.0
#include "adapter/shm/access_watch.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include <sched.h>

#include "base/log.h"
#include "base/spin_lock.h"

namespace verbena::engine {
namespace {

// A while at the processor, a while beside others, and then by the clock.
void pause(uint32_t tries) {
  if (tries < 1000) {
    cpu_relax();
  } else if (tries < 2000) {
    ::sched_yield();
  } else {
    const timespec moment{0, 100'000};
    ::nanosleep(&moment, nullptr);
  }
}

}  // namespace

std::shared_ptr<AccessWatch::Visitor> AccessWatch::add(std::shared_ptr<ChannelMapping> memory,
                                                       shm::Lane& lane, Duration patience) {
  auto visitor = std::make_shared<Visitor>(std::move(memory), lane);
  const std::lock_guard guard(lock_);
  look();
  forget_stuck(patience);
  visitors_.push_back(visitor);
  return visitor;
}

void AccessWatch::end(const std::shared_ptr<Visitor>& visitor, bool gone) {
  shm::refuse_visits(visitor->lane_);
  shm::LaneFormat::full_fence();
  visitor->gone_.store(gone, std::memory_order_relaxed);
  const std::lock_guard guard(lock_);
  visitor->ended_ = true;
  if (gone || visitor->is_overdue() || visitor->visit() == 0) {
    std::erase(visitors_, visitor);
  }
}

void AccessWatch::Visitor::give_up() {
  shm::refuse_visits(lane_);
  overdue_.store(true, std::memory_order_relaxed);
  log_warning("another process says for too long that it is reading or writing this one's memory");
}

void AccessWatch::forget_ended() {
  std::erase_if(visitors_, [](const auto& visitor) {
    return visitor->ended_ && (visitor->is_overdue() || visitor->visit() == 0);
  });
}

// REQUIRES: look()
void AccessWatch::forget_stuck(Duration patience) {
  const TimePoint now = MonotonicClock::now();
  std::erase_if(visitors_, [&](const auto& visitor) {
    if (!visitor->ended_) return false;
    if (visitor->seen_ != 0 && now - visitor->seen_since_ <= patience) return false;
    if (visitor->seen_ != 0) visitor->give_up();
    return true;
  });
}

// Notes who is there. With the lock.
void AccessWatch::look() {
  ++looks_;
  const TimePoint now = MonotonicClock::now();
  for (const auto& visitor : visitors_) {
    const uint32_t visit = visitor->is_overdue() ? 0 : visitor->visit();
    if (visit == 0 || visit != visitor->seen_) {
      visitor->seen_ = visit;
      visitor->seen_first_ = looks_;
      visitor->seen_since_ = now;
    }
  }
}

// What is seen for the first time by a later look has begun after this one.
uint64_t AccessWatch::under_way() {
  shm::LaneFormat::full_fence();  // the board has been changed
  const std::lock_guard guard(lock_);
  forget_ended();
  look();
  const bool is_someone_there =
      std::ranges::any_of(visitors_, [](const auto& visitor) { return visitor->seen_ != 0; });
  return is_someone_there ? looks_ : 0;
}

bool AccessWatch::have_ended(uint64_t accesses, Duration patience) {
  const std::lock_guard guard(lock_);
  forget_ended();
  look();
  const TimePoint now = MonotonicClock::now();
  bool all = true;
  for (const auto& visitor : visitors_) {
    if (visitor->seen_ == 0 || visitor->seen_first_ > accesses) continue;
    if (now - visitor->seen_since_ <= patience) {
      all = false;
    } else {
      visitor->give_up();
    }
  }
  return all;
}

bool AccessWatch::await(Duration patience) {
  std::vector<std::pair<std::shared_ptr<Visitor>, uint32_t>> under_way;
  shm::LaneFormat::full_fence();  // the board has been changed
  {
    const std::lock_guard guard(lock_);
    forget_ended();
    for (const auto& visitor : visitors_) {
      const uint32_t visit = visitor->visit();
      if (visit != 0 && !visitor->is_overdue()) under_way.emplace_back(visitor, visit);
    }
  }
  if (under_way.empty()) return true;

  bool whole = true;
  const TimePoint end = MonotonicClock::now() + patience;
  for (const auto& [visitor, visit] : under_way) {
    for (uint32_t tries = 0; visitor->visit() == visit; ++tries) {
      if (visitor->gone_.load(std::memory_order_relaxed)) break;
      if (tries % 256 == 255 && MonotonicClock::now() > end) {
        whole = false;
        visitor->give_up();
        break;
      }
      pause(tries);
    }
  }
  return whole;
}

}  // namespace verbena::engine
