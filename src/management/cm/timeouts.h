// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/time.h"

namespace verbena::cm {

// Times travel as n for 4.096 us * 2^n, n of five bits. None is shorter than a millisecond here, so that a
// peer's word cannot make a storm of retransmissions.
constexpr Duration time_of(uint8_t exponent) {
  return std::max<Duration>(Duration(4096) * (int64_t{1} << (exponent & 31)), std::chrono::milliseconds(1));
}

// The local ACK timeout for a path: twice the packet life time and the responder's delay (IBTA volume 1,
// 12.7.34). As a power of two that is the larger of both, and one more if the other is nearly as large; the
// kernel rounds so too.
constexpr uint8_t ack_timeout(uint8_t ack_delay, uint8_t packet_life_time) {
  const unsigned life = packet_life_time + 1u;
  const unsigned timeout = life >= ack_delay ? life + (ack_delay + 1u >= life ? 1 : 0)
                                             : ack_delay + (life + 1u >= ack_delay ? 1 : 0);
  return static_cast<uint8_t>(std::min(timeout, 31u));
}

}  // namespace verbena::cm
