// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>

#include <infiniband/verbs.h>

#include "adapter/objects/objects.h"
#include "adapter/queues/completion_queue.h"
#include "base/cache_line.h"

namespace verbena::adapter {

// A completion queue as the application knows it. The C struct is an ibv_cq_ex. An ibv_cq_ex begins with the
// fields of an ibv_cq, so the same pointer serves as an ibv_cq*.
struct alignas(kCacheLine) Cq : ibv_cq_ex, queues::EventSource, queues::CompletionListener, TableEntry {
  explicit Cq(OpenDevice& device);
  static Cq& of(ibv_cq* cq) { return *static_cast<Cq*>(reinterpret_cast<ibv_cq_ex*>(cq)); }
  static Cq& of(queues::EventSource& source) { return static_cast<Cq&>(source); }
  ibv_cq* abi() { return reinterpret_cast<ibv_cq*>(static_cast<ibv_cq_ex*>(this)); }

  void on_completion_event() override;
  void on_overflow() override;
  void on_event_held() override;

  // Delays completion events until `count` completions have come or `microseconds` have passed
  // (ibv_modify_cq(3)). With a `count` of 0, events are not delayed.
  void moderate(uint32_t count, uint32_t microseconds);

  // Cancels the queue's delayed events and removes pending ones, which the application has not taken yet.
  void retire();

  // Add or remove the shard of one QP, SRQ or work queue that completes into this queue. The queue's
  // completion channel gets or loses the shard, too. Each joined_by() is undone by one left_by() with the
  // same shard.
  void joined_by(engine::Shard& shard);
  void left_by(engine::Shard& shard);

  // Starts the delay of an event that req_notify_cq() found pending but moderated (see moderate()). Calls
  // on_event_held() with the lock of a shard that fills the queue, or of the home shard if there is none.
  void hold_event() {
    engine::Shard* shard = shards.first();
    (shard != nullptr ? *shard : owner.home()).exclusively([&] { on_event_held(); });
  }

  // Polls all shards that fill the queue, so that they process arrived packets. Called by an application
  // thread that found the queue empty.
  void drive() {
    shards.for_each(owner.home(), [](engine::Shard& shard) { shard.poll(); });
  }

  EventAccount account;
  // Events that the application has taken. The C struct counts the acknowledged events.
  std::atomic<uint32_t> comp_events_taken{0};
  AsyncEvents<kCqEvents.size()> async_events;
  CompChannel* comp_channel = nullptr;
  Pd* parent_domain = nullptr;
  std::unique_ptr<queues::CompletionQueue> queue;
  const queues::Completion* current = nullptr;  // the completion that ibv_wc_read_*() read
  std::atomic<int64_t> moderation_ns{0};        // maximum delay of an event; 0 if events are not delayed
  CqShards shards;
  engine::ShownObjects::Entry shown;
  UserCount users;  // QPs (counted once per role), SRQs and work queues
};

}  // namespace verbena::adapter
