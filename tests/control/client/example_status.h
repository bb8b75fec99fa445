// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "base/text.h"
#include "control/model/agent_status.h"

namespace verbena::control {

inline constexpr uint32_t kExampleDevice = 3;

// Returns a status with one link, a program with an object of each kind, and a second program that listens
// for connections.
inline AgentStatus example_status() {
  using protocol::ObjectKind;
  constexpr uint32_t kDevice = kExampleDevice;
  const Link link{.name = "rxe0",
                  .device_index = kDevice,
                  .netdev = "eth0",
                  .interface_index = 2,
                  .mac = {0x52, 0x54, 0, 0x77, 0, 1},
                  .up = true};
  QpNumbers rc{
      .qpn = 17, .type = IBV_QPT_RC, .state = IBV_QPS_RTS, .remote_qpn = 18, .device_index = kDevice};
  rc.details = {65537, 0, 1, IBV_MIG_MIGRATED, 1000, 2000, 0, 0};
  rc.counters[transport::kRetransmittedPackets] = 5;
  QpNumbers ud{.qpn = 20, .type = IBV_QPT_UD, .state = IBV_QPS_RESET, .device_index = kDevice};
  ud.details = {65537, 65539, 0, 0, 77, 0, 0, 0};
  SlotStatus slot{.index = 1, .pid = 149, .program = "holder", .qps = {rc, ud}};
  slot.lists_objects = true;
  slot.objects = {{ObjectKind::kContext, 65536, kDevice, {}},
                  {ObjectKind::kPd, 65537, kDevice, {65536, 7}},
                  {ObjectKind::kCq, 65538, kDevice, {65536, 4, 128}},
                  {ObjectKind::kSrq, 65539, kDevice, {65537, 0, IBV_SRQT_BASIC, 0}},
                  {ObjectKind::kMr, 65540, kDevice, {65537, 0x2e4, 0x2e4, 8192, 0x7000}}};
  protocol::CmIdRecord id{};
  id.pid = 150;
  id.number = 9;
  id.device_index = protocol::kNoDevice;
  id.port_space = RDMA_PS_TCP;
  id.state = 8;
  id.source = {.family = AF_INET, .port = htons(7471), .scope_id = 0, .address = {192, 0, 2, 1}};
  store_text(id.program, "ucmatose");
  AgentStatus status{.version = "1", .no_wire_reason = "", .links = {{link, "up", {}}}, .slots = {slot}};
  status.cm_ids = {id};
  return status;
}

}  // namespace verbena::control
