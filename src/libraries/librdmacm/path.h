// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/result.h"
#include "control/protocol/connection_messages.h"
#include "libraries/librdmacm/identifier.h"

namespace verbena::rdmacm {

// Every device of ours has one port and one partition.
inline constexpr uint8_t kPort = 1;
inline constexpr uint16_t kDefaultPartition = 0xffff;

// Takes over what the agent says about addresses and device: rdma_cm_id::route.addr, and, once the device is
// known, `verbs`, `pd` and `port_num`. ENODEV: libibverbs does not know that device.
Result<void> set_path(Identifier& identifier, const protocol::CmRoute& path);

// rdma_cm_id::route.path_rec, as the kernel describes a RoCE path.
Result<void> set_path_record(Identifier& identifier);

// How packets travel, as an address handle.
ibv_ah_attr address_handle_of(const protocol::CmRoute& path);

}  // namespace verbena::rdmacm
