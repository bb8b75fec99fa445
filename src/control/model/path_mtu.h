// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace verbena::control {

// Returns the path MTU for a netdev's MTU, as enum ibv_mtu: the largest that fits together with the RoCEv2
// headers, but at least 256 bytes. The headers are taken as 80 bytes, as in the kernel's rxe; a netdev MTU of
// 1500 gives 1024.
constexpr uint8_t path_mtu_of(uint32_t netdev_mtu) {
  constexpr uint32_t kOverhead = 80;
  uint8_t mtu = 5;  // IBV_MTU_4096
  while (mtu > 1 && netdev_mtu < (128u << mtu) + kOverhead) --mtu;
  return mtu;
}

}  // namespace verbena::control
