// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "adapter/shm/channel_memory.h"
#include "adapter/shm/visit.h"
#include "base/time.h"

namespace verbena::engine {

// The processes that may be at our memory by themselves, each of which says in its channel when it is. What
// they look at before, the board, is changed first; then one waits here until nobody goes by what it was.
//
// Thread-safe. No lock is held while waiting, and none of the others' is needed for their accesses to end. So
// two processes may wait for each other.
class AccessWatch {
 public:
  // One channel, by which another process may come.
  class Visitor {
   public:
    Visitor(std::shared_ptr<ChannelMapping> memory, shm::Lane& lane)
        : memory_(std::move(memory)), lane_(lane) {}
    // It stayed so long that it is waited for no more, and has been told to stay away. The channel is to be
    // given up.
    bool is_overdue() const { return overdue_.load(std::memory_order_relaxed); }

   private:
    friend class AccessWatch;
    uint32_t visit() const { return shm::visit_under_way(lane_); }
    void give_up();

    const std::shared_ptr<ChannelMapping> memory_;
    shm::Lane& lane_;  // which the other writes
    std::atomic<bool> gone_{false};
    std::atomic<bool> overdue_{false};
    // Under the watch's lock
    bool ended_ = false;       // it can begin nothing
    uint32_t seen_ = 0;        // the access that was under way when last looked at; 0: none
    uint64_t seen_first_ = 0;  // at which look that was first seen, and when
    TimePoint seen_since_;
  };

  // The most that anybody is waited for. An access takes microseconds, unless its process is stopped in the
  // midst of it, or says what is not so.
  static constexpr Duration kPatience = std::chrono::seconds(2);

  // REQUIRES: the other may not come yet. A channel that was given up, and is said to be used since for
  // longer than `patience`, is let go of: else who says so without end, of one channel after the other, has
  // all of them kept.
  std::shared_ptr<Visitor> add(std::shared_ptr<ChannelMapping> memory, shm::Lane& lane,
                               Duration patience = kPatience);
  // We give the channel up. An access that has begun is waited for all the same, unless the other process is
  // `gone`.
  void end(const std::shared_ptr<Visitor>& visitor, bool gone);

  // For who cannot wait. A number for the accesses that are under way now; 0: there are none. Neither blocks.
  uint64_t under_way();
  // Whether they have ended. One that has been seen for longer than `patience` is given up.
  bool have_ended(uint64_t accesses, Duration patience = kPatience);

  // Returns when the accesses that are under way now have ended. False: one was given up.
  bool await(Duration patience = kPatience);

 private:
  void look();
  void forget_ended();
  void forget_stuck(Duration patience);

  std::mutex lock_;
  std::vector<std::shared_ptr<Visitor>> visitors_;
  uint64_t looks_ = 0;
};

}  // namespace verbena::engine
