// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "preload/netlink/attributes.h"
#include "preload/netlink/request.h"

namespace verbena::rdma_netlink {

// Whose an object is. A reader looks for the name itself (/proc/PID/comm); where the agent does not see the
// process, it has the name from us.
inline void put_process(Attributes& entry, int pid, std::string_view program) {
  if (pid != 0) {
    entry.put_u32(RDMA_NLDEV_ATTR_RES_PID, static_cast<uint32_t>(pid));
  } else {
    entry.put_text(RDMA_NLDEV_ATTR_RES_KERN_NAME, program);
  }
}

}  // namespace verbena::rdma_netlink
