// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include <infiniband/verbs.h>

#include "adapter/objects/async_events.h"
#include "adapter/objects/event_account.h"
#include "adapter/objects/limits.h"
#include "adapter/objects/object_table.h"
#include "adapter/objects/open_device.h"
#include "adapter/transport/receive_work_queue.h"

namespace verbena::adapter {

struct Cq;
struct Pd;

// A receive queue that is not part of a QP (ibv_create_wq(3)). Indirection tables refer to such queues.
struct Wq : ibv_wq, transport::WorkQueueListener {
  using Abi = ibv_wq;
  explicit Wq(OpenDevice& device);
  static Wq& of(ibv_wq* wq) { return *static_cast<Wq*>(wq); }

  void on_work_queue_fatal() override;

  OpenDevice& owner;
  engine::Shard& shard;
  ListHook owned;
  provider::LiveObject live;
  ObjectLimit::Place place;
  EventAccount account;
  std::atomic<uint32_t> async_events_taken{0};
  AsyncEvents<kWqEvents.size()> async_events;
  std::unique_ptr<transport::ReceiveWorkQueue> queue;
  Pd* domain = nullptr;
  Cq* completions = nullptr;
  uint32_t max_sge = 0;
  std::mutex modifying;
  std::atomic<uint32_t> users{0};  // entries of indirection tables that refer to this queue
};

// Creates and owns the work queues of a context. Thread-safe.
class ReceiveWorkQueues {
 public:
  explicit ReceiveWorkQueues(OpenDevice& device) : device_(device) {}
  ~ReceiveWorkQueues() {
    table_.destroy_all([&](Wq& wq) { retire(wq); });
  }

  // Creates a work queue, and writes the granted capacities back to attr.max_wr and attr.max_sge.
  Result<ibv_wq*> create(ibv_wq_init_attr& attr);
  int modify(ibv_wq* wq, const ibv_wq_attr& attr);
  int destroy(ibv_wq* wq);

 private:
  int check(const ibv_wq_init_attr& attr) const;
  // Releases the queue's number, removes the queue's completions from the CQ, and drops the queue's pending
  // events. Called before the queue is destroyed.
  void retire(Wq& wq);

  OpenDevice& device_;
  ObjectTable<Wq> table_{object_limits().wqs};
};

// A table of the receive queues over which a raw QP spreads its packets (ibv_create_rwq_ind_table(3)).
struct RwqIndTable : ibv_rwq_ind_table {
  using Abi = ibv_rwq_ind_table;
  static RwqIndTable& of(ibv_rwq_ind_table* table) { return *static_cast<RwqIndTable*>(table); }

  ListHook owned;
  provider::LiveObject live;
  ObjectLimit::Place place;
  std::vector<Wq*> queues;         // their number is a power of two
  std::atomic<uint32_t> users{0};  // QPs that spread packets over this table
};

// Creates and owns the indirection tables of a context. Thread-safe.
class IndirectionTables {
 public:
  explicit IndirectionTables(OpenDevice& device) : device_(device) {}

  Result<ibv_rwq_ind_table*> create(const ibv_rwq_ind_table_init_attr& attr);
  int destroy(ibv_rwq_ind_table* table);

 private:
  OpenDevice& device_;
  ObjectTable<RwqIndTable> table_{object_limits().rwq_tables};
};

}  // namespace verbena::adapter
