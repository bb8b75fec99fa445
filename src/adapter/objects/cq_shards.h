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

// The shards that fill a completion queue: those of the QPs, and of the queues, that complete in it. They are
// driven when it is polled, and each of them may hold its event back by an alarm of its own.
//
// Thread-safe. Looking through them takes no lock; with one shard, as is usual, it is one step.
class CqShards {
 public:
  // As many times as join(), with the same shard.
  void join(engine::Shard& shard);
  void leave(engine::Shard& shard);

  // The one that joined first of those that are there; nullptr when there is none.
  engine::Shard* first() const;

  // The only one there is; nullptr when there are several, or none.
  engine::Shard* only() const;

  // Calls visit(Shard&) for each; for `otherwise`, if there is none.
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

  // The calling thread is in a section of the shard. False: the shard is none of these.
  bool set_alarm(engine::Shard& shard, queues::CompletionQueue& queue, Duration after);
  void cancel_alarm(engine::Shard& shard);
  // REQUIRES: the calling thread is in no section
  void cancel_alarms();

 private:
  struct Member : engine::Alarm {
    void on_alarm() override { queue->release_event(); }

    std::atomic<engine::Shard*> shard{nullptr};
    uint32_t users = 0;                        // under the lock
    queues::CompletionQueue* queue = nullptr;  // under the shard's lock
    std::atomic<bool> may_be_set{false};       // an alarm was, once
  };
  Member* find(const engine::Shard& shard);

  std::array<Member, engine::kMaxShards> members_;
  std::atomic<uint32_t> used_{0};  // members from here on were never used
  SpinLock lock_;
};

}  // namespace verbena::adapter
