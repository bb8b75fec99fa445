// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include <infiniband/verbs.h>

#include "adapter/object_table.h"
#include "adapter/open_device.h"
#include "adapter/qp.h"

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

  // The device is gone: all requests are flushed.
  void fail_all();

 private:
  Result<ibv_qp*> create_raw(ibv_qp_init_attr_ex& attr);
  int check_raw(const ibv_qp_init_attr_ex& attr) const;

  // What QPs of all kinds are made with. The number is theirs to give back.
  engine::Shard& choose_shard(const ibv_qp_init_attr_ex& attr, bool with_tags);
  Result<roce::Qpn> reserve_number(engine::Shard& shard, ibv_qp_type type);
  transport::QpConfig common_config(const ibv_qp_init_attr_ex& attr, roce::Qpn qpn, QpCore& core,
                                    engine::Shard& shard);
  // Fills in what all have of the C struct, and lets packets reach the QP.
  ibv_qp* add(std::unique_ptr<Qp> qp, const ibv_qp_init_attr_ex& attr);

  int check_attributes(const Qp& qp, const ibv_qp_attr& attr, int mask) const;
  Result<void> apply(Qp& qp, const ibv_qp_attr& attr, int mask);

  // No packet reaches the QP any more, nothing of it is left in its CQs.
  void retire(Qp& qp);

  OpenDevice& device_;
  ObjectTable<Qp> table_;
};

}  // namespace verbena::adapter
