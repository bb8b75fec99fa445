// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <sys/types.h>

#include "adapter/transport/counters.h"
#include "control/model/device_counters.h"
#include "control/model/link.h"
#include "control/protocol/connection_status.h"
#include "control/protocol/status_page.h"

namespace verbena::control {

// A link with its state and counters.
struct LinkStatus {
  Link link;
  std::string wire;  // "up", or "down: why"
  DeviceCounters counters{};
};

// Numbers that a process published about one of its QPs in a status page. They are not checked.
struct QpNumbers {
  uint32_t qpn = 0;
  uint32_t type = 0;   // enum ibv_qp_type
  uint32_t state = 0;  // enum ibv_qp_state
  uint32_t remote_qpn = 0;
  protocol::QpWay way = protocol::QpWay::kWire;
  bool by_memory() const { return way != protocol::QpWay::kWire; }
  uint32_t device_index = 0;
  std::array<uint64_t, transport::kQpCounterCount> counters{};  // by transport::QpCounter
  std::array<uint64_t, transport::kPathNumberCount> path{};  // by transport::PathNumber; zeros without a path
  std::array<uint64_t, protocol::kQpDetailCount> details{};  // by protocol::QpDetail
};

// Numbers that a process published about an object other than a QP. They are not checked.
struct ObjectNumbers {
  protocol::ObjectKind kind = protocol::ObjectKind::kNone;
  uint32_t number = 0;  // unique on the host
  uint32_t device_index = 0;
  std::array<uint64_t, protocol::kObjectValues> values{};  // by protocol::PdValue and so on
};

// The number of a process's objects of each kind, including those for which its list has no room.
using ObjectTotals = std::array<uint64_t, static_cast<size_t>(protocol::ObjectKind::kCount)>;

// A leased slot: the process that has it, and the numbers on the slot's status page.
struct SlotStatus {
  uint32_t index = 0;
  pid_t pid = 0;  // 0 if in a pid namespace that the agent does not see
  uid_t uid = 0;
  std::string program;
  uint16_t protocol_version = 0;  // in use between the process's library and the agent; 0 if unknown
  bool has_wire = false;
  bool is_forwarded = false;  // the agent forwards packets; else the process has a socket of its own
  std::array<uint64_t, protocol::kPortNumbers> port{};  // by PortCounter
  std::vector<QpNumbers> qps;                           // QPs in use
  bool lists_objects = false;  // whether the process's library is new enough to publish objects
  std::vector<ObjectNumbers> objects{};
  ObjectTotals object_totals{};
};

// The answer to `verbena status`: the agent, its links, the leased slots and the connection manager.
struct AgentStatus {
  pid_t pid = 0;
  uid_t uid = 0;
  std::string version;
  uint16_t protocol_version = 1;  // the agent's own
  // Programs that the agent refused because of their protocol version: their number, and the latest one.
  struct Refused {
    uint32_t count = 0;
    pid_t last_pid = 0;
    uint16_t last_version = 0;
  } refused{};
  std::string no_wire_reason;  // empty if the agent has UDP port 4791
  std::vector<LinkStatus> links;
  std::vector<SlotStatus> slots;  // leased ones, by index
  protocol::CmStatus connection_management{};
  std::vector<protocol::CmIdRecord> cm_ids{};
  uint32_t cm_ids_left_out = 0;
};

}  // namespace verbena::control
