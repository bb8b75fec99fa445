// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "adapter/engine/alarms.h"
#include "adapter/engine/shard.h"
#include "adapter/engine/shard_dealing.h"
#include "adapter/queues/completion_queue.h"
#include "base/spin_lock.h"

namespace verbena::adapter {

// The set of shards that add completions to one completion queue, or to the queues of one completion channel.
// A shard is in the set while one of its QPs, SRQs or work queues completes there. Polling an empty queue
// polls all shards of the set. Each shard has an alarm that ends the delay of a completion event
// (Cq::moderate()).
//
// Thread-safe. for_each() takes no lock, and visits one member in the usual case of one shard.
class CqShards {
 public:
  // Add and remove one use of the shard, which is in the set while it has any use. Each join() is undone by
  // one leave() with the same shard.
  void join(engine::Shard& shard);
  void leave(engine::Shard& shard);

  // Returns a shard of the set, usually the one that joined first, or nullptr if the set is empty.
  engine::Shard* first() const;

  // Returns the shard if the set contains exactly one, else nullptr.
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

  // ---- delayed completion events

  // Set and cancel the shard's alarm. When `after` has passed, the alarm posts the delayed event of `queue`.
  // set_alarm() returns false if the shard is not in the set. REQUIRES: the caller holds the shard's lock
  // (Shard::exclusively())
  bool set_alarm(engine::Shard& shard, queues::CompletionQueue& queue, Duration after);
  void cancel_alarm(engine::Shard& shard) {
    if (Member* member = find(shard)) shard.cancel_alarm(*member);
  }
  // Cancels the alarms of all shards in the set. REQUIRES: the calling thread does not hold a shard's lock
  void cancel_alarms();

 private:
  struct Member : engine::Alarm {
    void on_alarm() override { queue->release_event(); }

    std::atomic<engine::Shard*> shard{nullptr};
    uint32_t users = 0;                        // under lock_
    queues::CompletionQueue* queue = nullptr;  // under the shard's lock
    std::atomic<bool> may_be_set{false};       // whether this alarm was ever set
  };
  Member* find(const engine::Shard& shard);

  std::array<Member, engine::kMaxShards> members_;
  std::atomic<uint32_t> used_{0};  // members from this index on were never used
  SpinLock lock_;
};

}  // namespace verbena::adapter
