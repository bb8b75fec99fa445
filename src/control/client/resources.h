// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "control/model/agent_status.h"

namespace verbena::control {

// Functions that derive the objects of a device from the agent's status, for programs that show them as
// iproute2 or the kernel's messages do. Pure.

// Whether the library of the slot's process is new enough to list objects. If it is, the process's contexts
// are listed on one of its slots' pages.
bool lists_objects(const AgentStatus& status, const SlotStatus& slot);

// Whether the identifier is shown with this device. One that is bound to no device is shown with each of
// them, as any of them may receive its connections.
bool is_of(const protocol::CmIdRecord& id, const Link& link);

// The QPs that take their receive requests from the shared receive queue of this number.
std::vector<uint32_t> qps_of_shared_receives(const AgentStatus& status, uint32_t srq);

// The number of objects of each kind that a device has. Objects that a process's list has no room for are
// counted, too; in a process with several devices they count for the first one.
struct ResourceSummary {
  uint64_t pd = 0, cq = 0, qp = 0, cm_id = 0, mr = 0, ctx = 0, srq = 0;
};
ResourceSummary summary_of(const AgentStatus& status, const Link& link);

// Whether packets can be sent: the port is ACTIVE.
inline bool is_active(const LinkStatus& device) {
  return device.wire == "up";
}

}  // namespace verbena::control
