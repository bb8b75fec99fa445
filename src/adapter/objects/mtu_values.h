// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <infiniband/verbs.h>

#include "control/model/path_mtu.h"

namespace verbena::adapter {

// The path MTU, as an enum value, that fits a netdev's MTU. As in the kernel's rxe, IP, UDP and all transport
// headers are subtracted.
inline ibv_mtu path_mtu_of(uint32_t netdev_mtu) {
  return static_cast<ibv_mtu>(control::path_mtu_of(netdev_mtu));
}

// The path MTU in bytes; 0 for any value that is not an ibv_mtu.
inline uint32_t mtu_bytes(ibv_mtu mtu) {
  return mtu < IBV_MTU_256 || mtu > IBV_MTU_4096 ? 0 : 128u << mtu;
}

}  // namespace verbena::adapter
