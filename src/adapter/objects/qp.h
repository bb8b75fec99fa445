// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include <infiniband/verbs.h>

#include "adapter/engine/shard.h"
#include "adapter/objects/async_events.h"
#include "adapter/objects/event_account.h"
#include "adapter/objects/object_limit.h"
#include "adapter/objects/open_device.h"
#include "adapter/objects/raw_side.h"
#include "adapter/objects/send_batch.h"
#include "adapter/objects/user_count.h"
#include "adapter/transport/queue_pair.h"
#include "base/cache_line.h"
#include "base/intrusive_list.h"
#include "base/spin_lock.h"
#include "libraries/libibverbs/provider/live_objects.h"
#include "wire/roce/path.h"

namespace verbena::adapter {

struct Cq;
struct Pd;
struct Qp;
struct Srq;

// What all handles of one queue pair share. Only an XRC target has more than one (ibv_open_qp(3)); it ends
// with the last.
struct QpCore : transport::QpEventListener {
  void on_qp_event(ibv_event_type event) override;

  // False: it has ended, with its last handle.
  bool add(Qp& handle);
  // Whether it was the last.
  bool remove(Qp& handle);

  std::unique_ptr<transport::QueuePair> transport;
  ibv_qp_attr attributes{};  // as last set; what the transport owns is filled in when queried
  std::mutex modifying;

 private:
  SpinLock lock_;
  std::vector<Qp*> handles_;
  bool ended_ = false;
};

// A multicast group as a QP was attached to it.
struct MulticastBinding {
  roce::Address group;
  uint16_t lid = 0;
  friend bool operator==(const MulticastBinding&, const MulticastBinding&) = default;
};

// The C struct is an ibv_qp_ex, whose first member is an ibv_qp.
struct alignas(kCacheLine) Qp : ExtendedQp {
  Qp(OpenDevice& device, engine::Shard& on, std::shared_ptr<QpCore> shared);
  static Qp& of(ibv_qp* qp) { return *static_cast<Qp*>(reinterpret_cast<ibv_qp_ex*>(qp)); }
  ibv_qp* abi() { return &qp_base; }

  OpenDevice& owner;
  engine::Shard& shard;
  ListHook owned;
  provider::LiveObject live;
  ObjectLimit::Place place;
  EventAccount account;
  std::atomic<uint32_t> async_events_taken{0};
  AsyncEvents<kQpEvents.size()> async_events;
  std::unique_ptr<RawSide> raw;  // null unless it is for raw packets
  const std::shared_ptr<QpCore> core;
  transport::QueuePair* const transport;  // the core's
  ibv_qp_attr& attributes;                // likewise
  std::mutex& modifying;                  // likewise
  ibv_qp_init_attr init{};
  // Null: it has none. Programs can write the fields of ibv_qp, so these decide.
  Pd* pd = nullptr;
  Cq* send_cq = nullptr;
  Cq* recv_cq = nullptr;
  Srq* srq = nullptr;
  std::vector<MulticastBinding> multicast;  // the groups this handle is attached to
  ibv_xrcd* xrcd = nullptr;                 // an XRC target's
  uint32_t send_opcodes = 0;                // what may be posted, a bit each (send_rules.h)
  uint32_t create_flags = 0;                // enum ibv_qp_create_flags
  bool one_thread = false;                  // of a thread domain: posting takes no lock
  bool extended = false;                    // created for ibv_wr_*
  SendBatch batch;
  std::vector<Uses::Use> counters;  // completion counters that are attached to it
};

// For concerning() of base/failed_call.h: names the QP, its device and port. Answers `error`.
int concerning_qp(const Qp& qp, int error);

// Takes what its CQs hold of the QP. REQUIRES: the shard's lock
void forget_completions(Qp& qp);

}  // namespace verbena::adapter
