// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>

#include <infiniband/verbs.h>
#include <pthread.h>

#include "engine/shard.h"
#include "memory/region.h"
#include "queues/completion_queue.h"
#include "queues/event_channel.h"
#include "roce/path.h"
#include "transport/queue_pair.h"

namespace verbena::adapter {

class SoftwareContext;

// The adapter's objects. Each begins with the C struct that the application holds a pointer to; of() goes
// back.

struct Pd : ibv_pd {
  static Pd& of(ibv_pd* pd) { return *static_cast<Pd*>(pd); }

  memory::PdId id = 0;
  std::atomic<uint32_t> users{0};  // MRs, QPs, AHs
};

struct Mr : ibv_mr {
  static Mr& of(ibv_mr* mr) { return *static_cast<Mr*>(mr); }

  memory::Region region;
};

struct CompChannel : ibv_comp_channel {
  static CompChannel& of(ibv_comp_channel* channel) { return *static_cast<CompChannel*>(channel); }

  std::unique_ptr<queues::EventChannel> events;
  std::atomic<uint32_t> users{0};  // CQs
};

// The C struct is an ibv_cq_ex, whose first part is an ibv_cq.
struct Cq : ibv_cq_ex, queues::EventSource, queues::CompletionListener {
  static Cq& of(ibv_cq* cq) { return *static_cast<Cq*>(reinterpret_cast<ibv_cq_ex*>(cq)); }
  static Cq& of(queues::EventSource& source) { return static_cast<Cq&>(source); }
  ibv_cq* abi() { return reinterpret_cast<ibv_cq*>(static_cast<ibv_cq_ex*>(this)); }

  void on_completion_event() override;
  void on_overflow() override;

  SoftwareContext* owner = nullptr;
  CompChannel* comp_channel = nullptr;
  std::unique_ptr<queues::CompletionQueue> queue;
  std::atomic<uint32_t> users{0};  // QPs, each counted for each of its two roles
  // Events handed to the application; the ones it acknowledged are counted in the C struct.
  std::atomic<uint32_t> comp_events_taken{0};
  std::atomic<uint32_t> async_events_taken{0};
};

// The C struct is an ibv_qp_ex, whose first member is an ibv_qp.
struct Qp : ibv_qp_ex, transport::QpEventListener {
  static Qp& of(ibv_qp* qp) { return *static_cast<Qp*>(reinterpret_cast<ibv_qp_ex*>(qp)); }
  ibv_qp* abi() { return &qp_base; }

  void on_qp_event(ibv_event_type event) override;

  SoftwareContext* owner = nullptr;
  engine::Shard* shard = nullptr;
  std::unique_ptr<transport::QueuePair> transport;
  ibv_qp_init_attr init{};
  ibv_qp_attr attributes{};  // as last set; what the transport owns is filled in when queried
  std::mutex modifying;
  std::atomic<uint32_t> async_events_taken{0};
};

struct Ah : ibv_ah {
  static Ah& of(ibv_ah* ah) { return *static_cast<Ah*>(ah); }

  roce::Path path;
};

}  // namespace verbena::adapter
