// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace verbena::control {

// The path MTU of a netdev, as enum ibv_mtu: the largest whose packets fit with all headers of RoCEv2. These
// are 80 bytes at most, as in the kernel's rxe; a netdev of MTU 1500 gives 1024.
constexpr uint8_t path_mtu_of(uint32_t netdev_mtu) {
  constexpr uint32_t kOverhead = 80;
  uint8_t mtu = 5;  // IBV_MTU_4096
  while (mtu > 1 && netdev_mtu < (128u << mtu) + kOverhead) --mtu;
  return mtu;
}

}  // namespace verbena::control
