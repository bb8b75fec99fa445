// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <memory>
#include <vector>

#include <infiniband/verbs.h>

#include "adapter/objects.h"
#include "transport/receive_work_queue.h"

namespace verbena::adapter {

// The objects of raw packets, besides their QPs (objects.h says what is common to all).

struct Counters : ibv_counters {
  static Counters& of(ibv_counters* counters) { return *static_cast<Counters*>(counters); }

  // What a reader finds at which index.
  struct Point {
    ibv_counter_description what;
    uint32_t index;
  };

  ListHook owned;
  engine::FlowTotals totals;
  std::mutex attaching;
  std::vector<Point> points;
  std::atomic<uint32_t> users{0};  // flows
};

struct Flow : ibv_flow {
  static Flow& of(ibv_flow* flow) { return *static_cast<Flow*>(flow); }

  ListHook owned;
  engine::FlowTarget target;
  Qp* qp = nullptr;
  Counters* counters = nullptr;
};

struct Wq : ibv_wq, transport::WorkQueueListener {
  explicit Wq(SoftwareContext& maker);
  static Wq& of(ibv_wq* wq) { return *static_cast<Wq*>(wq); }

  void on_work_queue_fatal() override;

  SoftwareContext& owner;
  engine::Shard& shard;
  ListHook owned;
  EventAccount account;
  std::atomic<uint32_t> async_events_taken{0};
  AsyncEvents<kWqEvents.size()> async_events;
  std::unique_ptr<transport::ReceiveWorkQueue> queue;
  uint32_t max_sge = 0;
  std::mutex modifying;
  std::atomic<uint32_t> users{0};  // entries of indirection tables
};

struct RwqIndTable : ibv_rwq_ind_table {
  static RwqIndTable& of(ibv_rwq_ind_table* table) { return *static_cast<RwqIndTable*>(table); }

  ListHook owned;
  std::vector<Wq*> queues;         // 2^n
  std::atomic<uint32_t> users{0};  // QPs
};

// The objects that a QP uses cannot go before it.
void count_users(const Qp& qp, int by);

// What the device says of raw packets.
void fill_raw_packet_capabilities(ibv_device_attr_ex& attr);

}  // namespace verbena::adapter
