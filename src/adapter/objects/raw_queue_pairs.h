// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>

#include <infiniband/verbs.h>

#include "adapter/engine/ethernet_link.h"

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

}  // namespace verbena::adapter
