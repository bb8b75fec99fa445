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
#include "adapter/objects/object_table.h"
#include "adapter/objects/raw_queue_pairs.h"
#include "adapter/objects/send_batch.h"
#include "adapter/objects/user_count.h"
#include "adapter/transport/queue_pair.h"
#include "base/cache_line.h"
#include "base/spin_lock.h"
#include "wire/roce/path.h"

namespace verbena::adapter {

struct Cq;
struct Pd;
struct Qp;
struct Srq;

// The state that all handles of one queue pair share. Only an XRC target can have several handles
// (ibv_open_qp(3)). The queue pair is destroyed with its last handle. Thread-safe.
struct QpCore : transport::QpEventListener {
  void on_qp_event(ibv_event_type event) override;

  // Adds a handle. Returns false if the last handle was removed before, so the queue pair is being destroyed.
  bool add(Qp& handle);
  // Removes a handle. Returns true if no handle is left, and then the caller destroys the queue pair.
  bool remove(Qp& handle);

  std::unique_ptr<transport::QueuePair> transport;
  ibv_qp_attr attributes{};  // as last set; a query adds the transport's own values
  std::mutex modifying;      // held by calls that read or change `attributes`

 private:
  SpinLock lock_;
  std::vector<Qp*> handles_;
  bool ended_ = false;
};

// A multicast group to which a QP is attached, with the LID that the application gave. RoCE has no LIDs, so
// the LID only tells attachments apart.
struct MulticastBinding {
  roce::Address group;
  uint16_t lid = 0;
  friend bool operator==(const MulticastBinding&, const MulticastBinding&) = default;
};

// A handle of a queue pair, as the application knows it. The C struct is an ibv_qp_ex, whose first member is
// an ibv_qp.
struct alignas(kCacheLine) Qp : ExtendedQp, TableEntry {
  Qp(OpenDevice& device, engine::Shard& on, std::shared_ptr<QpCore> shared);
  static Qp& of(ibv_qp* qp) { return *static_cast<Qp*>(reinterpret_cast<ibv_qp_ex*>(qp)); }
  ibv_qp* abi() { return &qp_base; }
  // Leaves the multicast groups of this handle and drops its pending events. If this is the last handle, also
  // unregisters the queue pair: then no packet reaches it, and its CQs hold no completions of it.
  void retire();

  engine::Shard& shard;
  EventAccount account;
  std::atomic<uint32_t> async_events_taken{0};
  AsyncEvents<kQpEvents.size()> async_events;
  std::unique_ptr<RawSide> raw;  // for raw packets only, else null
  const std::shared_ptr<QpCore> core;
  transport::QueuePair* const transport;  // core->transport
  ibv_qp_attr& attributes;                // core->attributes
  std::mutex& modifying;                  // core->modifying
  ibv_qp_init_attr init{};
  // The objects that the QP uses; null where it has none. The adapter uses these members and not the fields
  // of ibv_qp, because programs can write those fields.
  Pd* pd = nullptr;
  Cq* send_cq = nullptr;
  Cq* recv_cq = nullptr;
  Srq* srq = nullptr;
  std::vector<MulticastBinding> multicast;  // the groups to which this handle is attached
  ibv_xrcd* xrcd = nullptr;                 // set for an XRC target only
  uint32_t send_opcodes = 0;                // bit mask of the opcodes that may be posted (send_rules.h)
  uint32_t create_flags = 0;                // enum ibv_qp_create_flags
  bool one_thread = false;                  // in a thread domain, so posting takes no lock
  bool extended = false;                    // created with send_ops_flags, for ibv_wr_*()
  SendBatch batch;
  std::vector<Uses::Use> counters;  // the attached completion counters
};

// Records the QP number, the device and the port for the error message about a failed call (concerning() in
// base/failed_call.h). Returns `error`; records nothing if `error` is 0.
int concerning_qp(const Qp& qp, int error);

// Removes the QP's completions that the application has not polled from the QP's CQs. REQUIRES: the shard's
// lock is held
void forget_completions(Qp& qp);

}  // namespace verbena::adapter
