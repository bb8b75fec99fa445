// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "control/model/agent_status.h"

namespace verbena::control {

// The functions below derive the objects of a device from the agent's status, for programs that show them as
// iproute2 or the kernel's messages do. They do no I/O.

// Returns whether the slot's process publishes its objects, that is, whether its library is new enough. One
// of the process's slots then has the list, not necessarily this one.
bool lists_objects(const AgentStatus& status, const SlotStatus& slot);

// Returns whether the identifier is shown with this device. An identifier that is not bound to a device is
// shown with every device, because any may receive its connections.
bool is_of(const protocol::CmIdRecord& id, const Link& link);

// Returns the QP numbers that use the shared receive queue with this number.
std::vector<uint32_t> qps_of_shared_receives(const AgentStatus& status, uint32_t srq);

// The number of objects of each kind that a device has. Objects beyond the length of a process's list are
// counted for the device of the first listed object.
struct ResourceSummary {
  uint64_t pd = 0, cq = 0, qp = 0, cm_id = 0, mr = 0, ctx = 0, srq = 0;
};
ResourceSummary summary_of(const AgentStatus& status, const Link& link);

// Returns whether the port is ACTIVE, so that packets can be sent.
inline bool is_active(const LinkStatus& device) {
  return device.wire == "up";
}

}  // namespace verbena::control
