// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/result.h"
#include "control/protocol/connection_messages.h"
#include "libraries/librdmacm/identifier.h"

namespace verbena::rdmacm {

// All our devices have one port and one partition.
inline constexpr uint8_t kPort = 1;
inline constexpr uint16_t kDefaultPartition = 0xffff;

// Stores the agent's data about addresses and device in the rdma_cm_id: `route.addr` and, once the device is
// known, `verbs`, `pd` and `port_num`. Errors: ENODEV if libibverbs does not know the device; those of
// opening it.
Result<void> set_path(Identifier& identifier, const protocol::CmRoute& path);

// Fills rdma_cm_id::route.path_rec from the stored path, as the kernel does for a RoCE path. Errors: ENOMEM.
Result<void> set_path_record(Identifier& identifier);

// Returns the address handle attributes of a path.
ibv_ah_attr address_handle_of(const protocol::CmRoute& path);

}  // namespace verbena::rdmacm
