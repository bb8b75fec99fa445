// SPDX-License-Identifier: Apache-2.0
#include "engine/access_watch.h"

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
                                                       local::Lane& lane) {
  auto visitor = std::make_shared<Visitor>(std::move(memory), lane);
  const std::lock_guard guard(lock_);
  visitors_.push_back(visitor);
  return visitor;
}

void AccessWatch::end(const std::shared_ptr<Visitor>& visitor, bool gone) {
  visitor->lane_.refuses_access.store(1, std::memory_order_seq_cst);
  local::LaneFormat::full_fence();
  visitor->gone_.store(gone, std::memory_order_relaxed);
  const std::lock_guard guard(lock_);
  visitor->ended_ = true;
  if (gone || visitor->is_overdue() || !Visitor::is_under_way(visitor->access())) {
    std::erase(visitors_, visitor);
  }
}

bool AccessWatch::await(Duration patience) {
  std::vector<std::pair<std::shared_ptr<Visitor>, uint32_t>> under_way;
  // The other says that it is at our memory and then looks at the board; the board has been changed, and now
  // we look whether it says so. With a full fence between the two on either side, one sees the other.
  local::LaneFormat::full_fence();
  {
    const std::lock_guard guard(lock_);
    std::erase_if(visitors_, [](const auto& visitor) {
      return visitor->ended_ && (visitor->is_overdue() || !Visitor::is_under_way(visitor->access()));
    });
    for (const auto& visitor : visitors_) {
      const uint32_t access = visitor->access();
      if (Visitor::is_under_way(access) && !visitor->is_overdue()) under_way.emplace_back(visitor, access);
    }
  }
  if (under_way.empty()) return true;

  bool whole = true;
  const TimePoint end = MonotonicClock::now() + patience;
  for (const auto& [visitor, access] : under_way) {
    for (uint32_t tries = 0; visitor->access() == access; ++tries) {
      if (visitor->gone_.load(std::memory_order_relaxed)) break;
      if (tries % 256 == 255 && MonotonicClock::now() > end) {
        whole = false;
        visitor->lane_.refuses_access.store(1, std::memory_order_seq_cst);
        visitor->overdue_.store(true, std::memory_order_relaxed);
        log_warning("another process says for too long that it is reading or writing this one's memory");
        break;
      }
      pause(tries);
    }
  }
  return whole;
}

}  // namespace verbena::engine
