// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/time.h"

namespace verbena::cm {

// Returns the time for a 5-bit exponent n in a message: 4.096 us * 2^n, but at least a millisecond. Otherwise
// a peer could cause a storm of retransmissions.
constexpr Duration time_of(uint8_t exponent) {
  return std::max<Duration>(Duration(4096) * (int64_t{1} << (exponent & 31)), std::chrono::milliseconds(1));
}

// Returns the exponent of the local ACK timeout for a path: twice the packet life time plus the responder's
// delay (IBTA volume 1, 12.7.34). Both arguments are exponents. Rounded as in the kernel: the larger exponent
// of the two terms, plus one if the other is at most one less.
constexpr uint8_t ack_timeout(uint8_t ack_delay, uint8_t packet_life_time) {
  const unsigned life = packet_life_time + 1u;
  const unsigned timeout = life >= ack_delay ? life + (ack_delay + 1u >= life ? 1 : 0)
                                             : ack_delay + (life + 1u >= ack_delay ? 1 : 0);
  return static_cast<uint8_t>(std::min(timeout, 31u));
}

}  // namespace verbena::cm
