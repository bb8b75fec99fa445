// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>

#include <infiniband/verbs.h>

#include "adapter/objects/async_events.h"
#include "adapter/objects/completion_channels.h"
#include "adapter/objects/cq_shards.h"
#include "adapter/objects/event_account.h"
#include "adapter/objects/limits.h"
#include "adapter/objects/object_table.h"
#include "adapter/objects/open_device.h"
#include "adapter/objects/protection_domains.h"
#include "adapter/objects/user_count.h"
#include "adapter/queues/completion_queue.h"
#include "base/cache_line.h"

namespace verbena::adapter {

// A completion queue as the application knows it. The C struct is an ibv_cq_ex, whose first part is an
// ibv_cq.
struct alignas(kCacheLine) Cq : ibv_cq_ex, queues::EventSource, queues::CompletionListener {
  explicit Cq(OpenDevice& device);
  static Cq& of(ibv_cq* cq) { return *static_cast<Cq*>(reinterpret_cast<ibv_cq_ex*>(cq)); }
  static Cq& of(queues::EventSource& source) { return static_cast<Cq&>(source); }
  ibv_cq* abi() { return reinterpret_cast<ibv_cq*>(static_cast<ibv_cq_ex*>(this)); }

  void on_completion_event() override;
  void on_overflow() override;
  void on_event_held() override;

  // Holds completion events back until `count` entries have come or `microseconds` have passed. With a count
  // of 0, events are not held back.
  void moderate(uint32_t count, uint32_t microseconds);

  // Add or remove the shard of one QP or queue that completes here.
  void joined_by(engine::Shard& shard);
  void left_by(engine::Shard& shard);

  // Runs on_event_held() inside a shard, for an event that req_notify_cq() found to be held back.
  void hold_event() {
    engine::Shard* shard = shards.first();
    (shard != nullptr ? *shard : owner.home()).exclusively([&] { on_event_held(); });
  }

  // Makes progress on all shards that fill the queue, for an application thread that found the queue empty.
  void drive() {
    shards.for_each(owner.home(), [](engine::Shard& shard) { shard.poll(); });
  }

  OpenDevice& owner;
  ListHook owned;
  provider::LiveObject live;
  ObjectLimit::Place place;
  EventAccount account;
  // Events that the application has taken. The C struct counts those that it has acknowledged.
  std::atomic<uint32_t> comp_events_taken{0};
  std::atomic<uint32_t> async_events_taken{0};
  AsyncEvents<kCqEvents.size()> async_events;
  CompChannel* comp_channel = nullptr;
  Pd* parent_domain = nullptr;
  std::unique_ptr<queues::CompletionQueue> queue;
  const queues::Completion* current = nullptr;  // the entry that extended polling shows now
  std::atomic<int64_t> moderation_ns{0};  // the longest time for which an event is held back; 0: not at all
  CqShards shards;
  engine::ShownObjects::Entry shown;
  UserCount users;  // QPs (counted once per role), SRQs and work queues
};

// Creates and owns the completion queues of a context. Thread-safe.
class CompletionQueues {
 public:
  explicit CompletionQueues(OpenDevice& device) : device_(device) {}
  ~CompletionQueues() {
    table_.destroy_all([&](Cq& cq) { withdraw_events(cq); });
  }

  Result<ibv_cq*> create(int cqe, void* cq_context, ibv_comp_channel* channel, int comp_vector);
  Result<ibv_cq_ex*> create_ex(const ibv_cq_init_attr_ex& attr);
  int resize(ibv_cq* cq, int cqe);
  int modify(ibv_cq* cq, const ibv_modify_cq_attr& attr);
  int destroy(ibv_cq* cq);

  // ibv_get_cq_event(3). Blocks unless the channel's descriptor is O_NONBLOCK.
  static int get_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context);
  static void acknowledge_events(ibv_cq* cq, unsigned count);

 private:
  Result<Cq*> make(const ibv_cq_init_attr_ex& attr);
  // Drops the queue's events that the application has not taken yet.
  void withdraw_events(Cq& cq);

  OpenDevice& device_;
  ObjectTable<Cq> table_{object_limits().cqs};
};

}  // namespace verbena::adapter
