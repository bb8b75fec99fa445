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

// Tracks the other processes that may access this process's memory directly. Each of them (a visitor) notes
// in its channel when an access is under way (visit.h).
//
// To revoke a right, the owner first changes its export table (board.h), which visitors check before each
// access. Then it waits here until the accesses that may have seen the old table have ended.
//
// Thread-safe. No lock is held while waiting, and a visitor can end its access without a lock of ours. So two
// processes that wait for each other's accesses do not deadlock.
class AccessWatch {
 public:
  // One channel whose peer may access our memory.
  class Visitor {
   public:
    Visitor(std::shared_ptr<ChannelMapping> memory, shm::Lane& lane)
        : memory_(std::move(memory)), lane_(lane) {}
    // Returns whether an access of this visitor has lasted too long and was given up. From then on nobody
    // waits for this visitor, and it has been told to begin no further access. The caller should give the
    // channel up.
    bool is_overdue() const { return overdue_.load(std::memory_order_relaxed); }

   private:
    friend class AccessWatch;
    uint32_t visit() const { return shm::visit_under_way(lane_); }
    void give_up();

    const std::shared_ptr<ChannelMapping> memory_;
    shm::Lane& lane_;  // the lane that the visitor writes
    std::atomic<bool> gone_{false};
    std::atomic<bool> overdue_{false};
    // Under the watch's lock
    bool ended_ = false;       // end() was called: it begins no further access
    uint32_t seen_ = 0;        // the access that the last look saw under way; 0: none
    uint64_t seen_first_ = 0;  // the number of the look that saw it first, and its time
    TimePoint seen_since_;
  };

  // The longest time to wait for an access. An access takes microseconds, unless the visitor is stopped in
  // the middle of it, or claims an access that does not exist.
  static constexpr Duration kPatience = std::chrono::seconds(2);

  // Adds the peer of a channel as a visitor. `lane` is the lane that the peer writes. Also removes visitors
  // that were ended by end() and still claim an access after more than `patience`: otherwise a peer could
  // keep the memory of many channels in use. REQUIRES: the peer may not access our memory yet
  std::shared_ptr<Visitor> add(std::shared_ptr<ChannelMapping> memory, shm::Lane& lane,
                               Duration patience = kPatience);
  // Makes a visitor begin no further access. Called when we give up its channel. An access that has begun is
  // still waited for, unless the visitor's process has ended (`gone`).
  void end(const std::shared_ptr<Visitor>& visitor, bool gone);

  // under_way() and have_ended() are for callers that cannot wait. under_way() returns a number that stands
  // for the accesses that are under way now, to be passed to have_ended(), or 0 if there are none.
  uint64_t under_way();
  // Returns whether all accesses for which under_way() returned the number `accesses` have ended. Does not
  // wait. An access that has been seen for longer than `patience` is given up, and counts as ended.
  bool have_ended(uint64_t accesses, Duration patience = kPatience);

  // Waits until the accesses that are under way now have ended. Gives up an access that takes longer than
  // `patience`, and returns false in this case.
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
