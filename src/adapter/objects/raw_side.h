// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>

#include "adapter/engine/ethernet_link.h"

namespace verbena::adapter {

struct Qp;
struct RwqIndTable;

// The additional state of a QP for raw packets.
struct RawSide {
  explicit RawSide(std::shared_ptr<engine::EthernetLink> ethernet)
      : link(std::move(ethernet)), sender(*link) {}

  const std::shared_ptr<engine::EthernetLink> link;
  engine::EthernetLink::Sender sender;
  RwqIndTable* table = nullptr;    // if set, received packets are spread over the queues of this table
  std::atomic<uint32_t> flows{0};  // rules that lead to this QP

  // Resumes reception after receive requests were posted, if frames wait for them. `qp` owns this RawSide.
  void after_receives(Qp& qp);
  // Limits the sending rate to `rate` kilobits per second (0: no limit) and bursts to `burst` bytes (0: the
  // default). REQUIRES: inside Shard::exclusively()
  void limit_rate(Qp& qp, uint32_t rate, uint32_t burst);
};

}  // namespace verbena::adapter
