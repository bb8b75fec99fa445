// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>

#include "adapter/engine/alarms.h"
#include "adapter/engine/shard.h"
#include "adapter/engine/shard_dealing.h"
#include "adapter/queues/completion_queue.h"
#include "base/spin_lock.h"

namespace verbena::adapter {

// The set of shards that fill a completion queue: those of the QPs and queues that complete there. Polling
// the queue makes progress on all of them. Each shard can hold the queue's event back with an alarm of its
// own.
//
// Thread-safe. Iterating takes no lock; in the usual case of one shard it is one step.
class CqShards {
 public:
  // Count the shard's users: each join() is undone by one leave() with the same shard.
  void join(engine::Shard& shard);
  void leave(engine::Shard& shard);

  // The member in the first used place, usually the one that joined first; nullptr when there is none.
  engine::Shard* first() const;

  // The only member; nullptr when there are none or several.
  engine::Shard* only() const;

  // Calls visit() for each shard of the set, or for `otherwise` if the set is empty.
  template <class Visit>
  void for_each(engine::Shard& otherwise, Visit visit) const {
    const uint32_t used = used_.load(std::memory_order_acquire);
    bool any = false;
    for (uint32_t i = 0; i < used; ++i) {
      engine::Shard* shard = members_[i].shard.load(std::memory_order_acquire);
      if (shard == nullptr) continue;
      visit(*shard);
      any = true;
    }
    if (!any) visit(otherwise);
  }

  // ---- events that are held back

  // Sets the shard's alarm, which releases the queue's event after `after`. False: the shard is no member.
  // REQUIRES: inside the shard's exclusively()
  bool set_alarm(engine::Shard& shard, queues::CompletionQueue& queue, Duration after);
  void cancel_alarm(engine::Shard& shard);
  // Cancels the alarms of all members. REQUIRES: the calling thread does not hold a shard's lock
  void cancel_alarms();

 private:
  struct Member : engine::Alarm {
    void on_alarm() override { queue->release_event(); }

    std::atomic<engine::Shard*> shard{nullptr};
    uint32_t users = 0;                        // under lock_
    queues::CompletionQueue* queue = nullptr;  // under the shard's lock
    std::atomic<bool> may_be_set{false};       // whether an alarm was ever set
  };
  Member* find(const engine::Shard& shard);

  std::array<Member, engine::kMaxShards> members_;
  std::atomic<uint32_t> used_{0};  // members from here on were never used
  SpinLock lock_;
};

}  // namespace verbena::adapter
