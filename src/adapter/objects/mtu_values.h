// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <infiniband/verbs.h>

#include "control/model/path_mtu.h"

namespace verbena::adapter {

// The path MTU that a netdev of this MTU can carry (as the kernel's rxe counts: IP, UDP and all headers off),
// as an enum value.
inline ibv_mtu path_mtu_of(uint32_t netdev_mtu) {
  return static_cast<ibv_mtu>(control::path_mtu_of(netdev_mtu));
}

// Bytes of an enum ibv_mtu, 0 for none such.
inline uint32_t mtu_bytes(ibv_mtu mtu) {
  return mtu < IBV_MTU_256 || mtu > IBV_MTU_4096 ? 0 : 128u << mtu;
}

}  // namespace verbena::adapter
