// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <infiniband/verbs.h>

#include "adapter/engine/ethernet_link.h"
#include "adapter/engine/shard.h"
#include "adapter/objects/async_events.h"
#include "adapter/objects/object_table.h"
#include "adapter/objects/objects.h"
#include "adapter/objects/open_device.h"
#include "adapter/objects/send_request.h"
#include "adapter/queues/work_queue.h"
#include "adapter/transport/queue_pair.h"
#include "base/cache_line.h"
#include "base/result.h"
#include "base/spin_lock.h"
#include "wire/roce/path.h"

namespace verbena::adapter {

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
  // unregisters the queue pair. Then no packet reaches the queue pair, no memory window is bound to it, its
  // CQs hold no completions of it, and no other process uses its rights any more.
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

// Checks the requested capacities. Returns EINVAL if one exceeds the device's limit, else 0.
int check_capacities(const ibv_qp_cap& cap);

// Raises the requested capacities to those that a QP gets. The numbers of requests become powers of two.
// max_inline_data becomes at least 16 bytes for each send gather entry, because inline data uses the space of
// the gather list.
void round_up(ibv_qp_cap& cap);

// The send ring and the receive ring of a QP.
struct QpRings {
  queues::SendQueue send;
  queues::RecvQueue recv;

  // Allocates rings of the capacities `cap`, which round_up() has raised. The memory comes from `memory`, or
  // from the system if `memory` is null.
  static Result<QpRings> create(const ibv_qp_cap& cap, CustomMemory* memory);
};

// ---- the features of ibv_create_qp_ex(3) beyond ibv_create_qp(3)

// Checks the additional fields that attr.comp_mask names. Returns EINVAL for values that every device
// refuses, EOPNOTSUPP for features that this adapter lacks, else 0.
int check_extras(const ibv_qp_init_attr_ex& attr);

// Applies the additional fields to a new QP. REQUIRES: check_extras() returned 0, and qp.init is filled in
void apply_extras(Qp& qp, const ibv_qp_init_attr_ex& attr);

// Creates and owns the queue pairs of a context. Those for raw packets are in raw_queue_pairs.cc.
// Thread-safe.
class QueuePairs {
 public:
  explicit QueuePairs(OpenDevice& device) : device_(device) {}

  // Creates a QP of any type, and writes the granted capacities back to attr.cap.
  Result<ibv_qp*> create(ibv_qp_init_attr_ex& attr);
  // Opens another handle of an XRC target of this process (ibv_open_qp(3)). Errors: EOPNOTSUPP if the number
  // is of another process; EINVAL if the domain has no such target, or attr is wrong; EIO if the link was
  // deleted.
  Result<ibv_qp*> open(const ibv_qp_open_attr& attr);
  int modify(ibv_qp* qp, const ibv_qp_attr& attr, int mask);
  int modify_rate_limit(ibv_qp* qp, const ibv_qp_rate_limit_attr& attr);
  int query(ibv_qp* qp, ibv_qp_attr& attr, int mask, ibv_qp_init_attr& init_attr);
  int destroy(ibv_qp* qp);

  // Lists up to three QPs that use this Cq, Pd or Srq, for an error message: "QP 0x000011, QP 0x000012".
  std::string users_of(const void* object);

  // Moves all QPs to the error state (except QPs in RESET), which flushes their requests. Called when the
  // link is deleted.
  void fail_all();

 private:
  // The resources from which a QP of any type is built.
  struct Parts {
    engine::Shard& shard;
    ibv_pd* pd;  // null for an XRC target
    ObjectLimit::Place place;
    QpRings rings;
    std::shared_ptr<QpCore> core;
    transport::QpConfig config;
  };

  // Creates a QP of any type except IBV_QPT_RAW_PACKET.
  Result<ibv_qp*> create_transport(ibv_qp_init_attr_ex& attr);
  int check_raw(const ibv_qp_init_attr_ex& attr) const;
  Result<ibv_qp*> create_raw(ibv_qp_init_attr_ex& attr);
  Result<ibv_qp*> create_plain_raw(ibv_qp_init_attr_ex& attr, std::unique_ptr<RawSide> raw);
  // Creates a raw QP that spreads received packets over the receive queues of an indirection table.
  Result<ibv_qp*> create_scaling(ibv_qp_init_attr_ex& attr, std::unique_ptr<RawSide> raw);

  // Allocates the parts of a new QP: a QP number, and rings of the capacities `rings`.
  Result<Parts> reserve(const ibv_qp_init_attr_ex& attr, ibv_pd* pd, const ibv_qp_cap& rings);
  // Builds the Qp from `parts` and writes the granted capacities to `attr.cap`. REQUIRES:
  // parts.core->transport is set
  std::unique_ptr<Qp> make(Parts parts, ibv_qp_init_attr_ex& attr, const ibv_qp_cap& cap);
  engine::Shard& choose_shard(const ibv_qp_init_attr_ex& attr);
  Result<roce::Qpn> reserve_number(engine::Shard& shard, ibv_qp_type type);
  transport::QpConfig common_config(const ibv_qp_init_attr_ex& attr, ibv_pd* pd, roce::Qpn qpn, QpCore& core,
                                    engine::Shard& shard);
  // Fills in the common fields of the C struct and registers the QP with its shard. From then on, packets can
  // reach the QP.
  ibv_qp* add(std::unique_ptr<Qp> qp, const ibv_qp_init_attr_ex& attr);

  int check_attributes(const Qp& qp, const ibv_qp_attr& attr, int mask) const;
  int check_route(Qp& qp, const ibv_qp_attr& attr, int mask) const;
  Result<void> apply(Qp& qp, const ibv_qp_attr& attr, int mask);

  OpenDevice& device_;
  ObjectTable<Qp> table_;
};

}  // namespace verbena::adapter
