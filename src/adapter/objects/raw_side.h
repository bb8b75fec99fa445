// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>

#include "adapter/engine/ethernet_link.h"

namespace verbena::adapter {

struct Qp;
struct RwqIndTable;

// What a raw QP has besides.
struct RawSide {
  explicit RawSide(std::shared_ptr<engine::EthernetLink> ethernet)
      : link(std::move(ethernet)), sender(*link) {}

  const std::shared_ptr<engine::EthernetLink> link;
  engine::EthernetLink::Sender sender;
  RwqIndTable* table = nullptr;    // it spreads what it receives over this one's queues
  std::atomic<uint32_t> flows{0};  // rules that name it

  // Receive requests were posted to the QP, which is this one's.
  void after_receives(Qp& qp);
  // REQUIRES: inside Shard::exclusively()
  void limit_rate(Qp& qp, uint32_t rate, uint32_t burst);
};

}  // namespace verbena::adapter
