// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <infiniband/verbs.h>

#include "control/model/link.h"

namespace verbena::adapter {

// Returns the largest path MTU whose packets fit a netdev MTU of `netdev_mtu` bytes, but at least
// IBV_MTU_256. As in the kernel's rxe, 80 bytes are subtracted for IP, UDP and all transport headers.
inline ibv_mtu path_mtu_of(uint32_t netdev_mtu) {
  return static_cast<ibv_mtu>(control::path_mtu_of(netdev_mtu));
}

// Returns the path MTU in bytes, or 0 for a value that is not an ibv_mtu.
inline uint32_t mtu_bytes(ibv_mtu mtu) {
  return mtu < IBV_MTU_256 || mtu > IBV_MTU_4096 ? 0 : 128u << mtu;
}

}  // namespace verbena::adapter
