// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include <infiniband/verbs.h>

#include "adapter/objects/object_table.h"
#include "adapter/objects/objects.h"
#include "adapter/objects/open_device.h"
#include "adapter/objects/qp.h"
#include "adapter/queues/work_queue.h"
#include "base/result.h"

namespace verbena::adapter {

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

// Creates and owns the queue pairs of a context. Creation is in queue_pairs.cc and raw_queue_pairs.cc, modify
// and query are in queue_pair_attributes.cc. Thread-safe.
class QueuePairs {
 public:
  explicit QueuePairs(OpenDevice& device) : device_(device) {}

  // Creates a QP of any type, and writes the granted capacities back to attr.cap.
  Result<ibv_qp*> create(ibv_qp_init_attr_ex& attr);
  // Opens another handle of an XRC target of this process (ibv_open_qp(3)).
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
