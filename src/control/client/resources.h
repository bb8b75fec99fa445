// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "control/model/agent_status.h"

namespace verbena::control {

// What follows from a status about the objects of a device: for those who show them, in iproute2's words or
// in the kernel's messages. Pure.

// Whether the process's library is of a version that lists objects: one that does has its contexts listed, on
// one of its slots' pages.
bool lists_objects(const AgentStatus& status, const SlotStatus& slot);

// Whether the identifier is shown with this device: one that is bound to no device is with each of them, as
// it may be reached by each.
bool is_of(const protocol::CmIdRecord& id, const Link& link);

// The QPs that take their receives from the shared receive queue of that number.
std::vector<uint32_t> qps_of_shared_receives(const AgentStatus& status, uint32_t srq);

// How many of each kind a device has. Of objects all are counted, also those that no list has room for: of a
// process with several devices these are taken for the first one's.
struct ResourceSummary {
  uint64_t pd = 0, cq = 0, qp = 0, cm_id = 0, mr = 0, ctx = 0, srq = 0;
};
ResourceSummary summary_of(const AgentStatus& status, const Link& link);

// Whether packets can be sent: the port is ACTIVE.
inline bool is_active(const LinkStatus& device) {
  return device.wire == "up";
}

}  // namespace verbena::control
