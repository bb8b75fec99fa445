// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include <infiniband/verbs.h>

#include "adapter/engine/ethernet_link.h"
#include "adapter/engine/shard.h"
#include "adapter/objects/async_events.h"
#include "adapter/objects/object_table.h"
#include "adapter/objects/send_batch.h"
#include "adapter/transport/queue_pair.h"
#include "base/cache_line.h"
#include "base/spin_lock.h"
#include "wire/roce/path.h"

namespace verbena::adapter {

struct Qp;
struct RwqIndTable;

// The additional state of a QP of type IBV_QPT_RAW_PACKET.
struct RawSide {
  explicit RawSide(std::shared_ptr<engine::EthernetLink> ethernet)
      : link(std::move(ethernet)), sender(*link) {}

  const std::shared_ptr<engine::EthernetLink> link;
  engine::EthernetLink::Sender sender;
  RwqIndTable* table = nullptr;    // if set, received packets go to the queues of this table
  std::atomic<uint32_t> flows{0};  // flow rules that steer to this QP

  // Resumes reception if frames wait. Call after posting receive requests. `qp` owns this RawSide.
  void after_receives(Qp& qp);
  // Limits the sending rate to `rate` kilobits per second (0: no limit) and bursts to `burst` bytes (0: the
  // default). REQUIRES: the caller holds the shard's lock (Shard::exclusively())
  void limit_rate(Qp& qp, uint32_t rate, uint32_t burst);
};

// Fills in the raw-packet attributes of the device: flags, receive scaling, work queues and packet pacing.
void fill_raw_packet_capabilities(ibv_device_attr_ex& attr);

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

// Ends one attachment in the engine, when the QP is detached or destroyed. The caller removes `binding` from
// qp.multicast. REQUIRES: the QP is attached
void leave_group(Qp& qp, const MulticastBinding& binding);

// Removes the QP's completions that the application has not polled from the QP's CQs. REQUIRES: the shard's
// lock is held
void forget_completions(Qp& qp);

}  // namespace verbena::adapter
