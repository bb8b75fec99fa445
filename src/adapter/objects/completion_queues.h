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

// A completion queue as the application knows it. The C struct is an ibv_cq_ex. An ibv_cq_ex begins with the
// fields of an ibv_cq, so the same pointer serves as an ibv_cq*.
struct alignas(kCacheLine) Cq : ibv_cq_ex, queues::EventSource, queues::CompletionListener {
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

  OpenDevice& owner;
  ListHook owned;
  provider::LiveObject live;
  ObjectLimit::Place place;
  EventAccount account;
  // Events that the application has taken. The C struct counts the acknowledged events.
  std::atomic<uint32_t> comp_events_taken{0};
  std::atomic<uint32_t> async_events_taken{0};
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

  // Takes the oldest completion event of the channel (ibv_get_cq_event(3)). Blocks while there is none,
  // unless the channel's descriptor is O_NONBLOCK. Returns 0 or an errno value.
  static int get_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context);
  static void acknowledge_events(ibv_cq* cq, unsigned count);

 private:
  Result<Cq*> make(const ibv_cq_init_attr_ex& attr);
  // Cancels the queue's delayed events and removes pending ones, which the application has not taken yet.
  // Called before the queue is destroyed.
  void withdraw_events(Cq& cq);

  OpenDevice& device_;
  ObjectTable<Cq> table_{object_limits().cqs};
};

}  // namespace verbena::adapter
