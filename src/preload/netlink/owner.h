// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "preload/netlink/attributes.h"
#include "preload/netlink/request.h"

namespace verbena::rdma_netlink {

// Adds the process that owns an object to the object's attributes. The reader finds the process's name by its
// PID (/proc/PID/comm). If the agent does not see the process (PID 0), adds the program's name instead.
inline void put_process(Attributes& entry, int pid, std::string_view program) {
  if (pid != 0) {
    entry.put_u32(RDMA_NLDEV_ATTR_RES_PID, static_cast<uint32_t>(pid));
  } else {
    entry.put_text(RDMA_NLDEV_ATTR_RES_KERN_NAME, program);
  }
}

}  // namespace verbena::rdma_netlink
