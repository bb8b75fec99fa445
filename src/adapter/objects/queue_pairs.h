// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include <infiniband/verbs.h>

#include "adapter/objects/object_table.h"
#include "adapter/objects/open_device.h"
#include "adapter/objects/qp.h"
#include "adapter/objects/qp_capacities.h"

namespace verbena::adapter {

// The queue pairs of a context: how they come (queue_pairs.cc, raw_queue_pairs.cc), change and answer
// (queue_pair_attributes.cc), and go.
class QueuePairs {
 public:
  explicit QueuePairs(OpenDevice& device) : device_(device) {}
  ~QueuePairs() {
    table_.destroy_all([&](Qp& qp) { retire(qp); });
  }

  Result<ibv_qp*> create(ibv_qp_init_attr_ex& attr);  // its capacities are updated
  // A further handle of an XRC target.
  Result<ibv_qp*> open(const ibv_qp_open_attr& attr);
  int modify(ibv_qp* qp, const ibv_qp_attr& attr, int mask);
  int modify_rate_limit(ibv_qp* qp, const ibv_qp_rate_limit_attr& attr);
  int query(ibv_qp* qp, ibv_qp_attr& attr, int mask, ibv_qp_init_attr& init_attr);
  int destroy(ibv_qp* qp);

  // For complaints: the numbers of some QPs that use this CQ, PD or SRQ, as "QP 0x000011, QP 0x000012".
  std::string users_of(const void* object);

  // The device is gone: all requests are flushed.
  void fail_all();

 private:
  // What QPs of all kinds are made of.
  struct Parts {
    engine::Shard& shard;
    ibv_pd* pd;  // null: it has none
    ObjectLimit::Place place;
    QpRings rings;
    std::shared_ptr<QpCore> core;
    transport::QpConfig config;
  };

  // A QP with a transport: all but those for raw packets.
  Result<ibv_qp*> create_transport(ibv_qp_init_attr_ex& attr);
  int check_raw(const ibv_qp_init_attr_ex& attr) const;
  Result<ibv_qp*> create_raw(ibv_qp_init_attr_ex& attr);
  Result<ibv_qp*> create_plain_raw(ibv_qp_init_attr_ex& attr, std::unique_ptr<RawSide> raw);
  // One that spreads what it receives over the receive queues of a table.
  Result<ibv_qp*> create_scaling(ibv_qp_init_attr_ex& attr, std::unique_ptr<RawSide> raw);

  // The parts of a new QP, with rings of these capacities. The number is the QP's to give back.
  Result<Parts> reserve(const ibv_qp_init_attr_ex& attr, ibv_pd* pd, const ibv_qp_cap& rings);
  // The QP of these parts, with these capacities, which `attr` gets too. REQUIRES: the core has its transport
  std::unique_ptr<Qp> make(Parts parts, ibv_qp_init_attr_ex& attr, const ibv_qp_cap& cap);
  engine::Shard& choose_shard(const ibv_qp_init_attr_ex& attr);
  Result<roce::Qpn> reserve_number(engine::Shard& shard, ibv_qp_type type);
  transport::QpConfig common_config(const ibv_qp_init_attr_ex& attr, ibv_pd* pd, roce::Qpn qpn, QpCore& core,
                                    engine::Shard& shard);
  // Fills in what all have of the C struct, and lets packets reach the QP.
  ibv_qp* add(std::unique_ptr<Qp> qp, const ibv_qp_init_attr_ex& attr);

  int check_attributes(const Qp& qp, const ibv_qp_attr& attr, int mask) const;
  int check_route(Qp& qp, const ibv_qp_attr& attr, int mask) const;
  Result<void> apply(Qp& qp, const ibv_qp_attr& attr, int mask);

  // No packet reaches the QP any more, nothing of it is left in its CQs.
  void retire(Qp& qp);

  OpenDevice& device_;
  ObjectTable<Qp> table_;
};

}  // namespace verbena::adapter
