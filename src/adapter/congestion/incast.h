// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace verbena::congestion {

// Tells a sender about the other senders to the same receiver process. Fits one word, so that an atomic of it
// is lock-free.
struct alignas(8) Incast {
  static constexpr uint32_t kMaxSenders = 181;
  static constexpr uint8_t kDips = 8;  // dip numbers are taken modulo this

  uint32_t senders = 1;  // number of senders, as if all sent equal parts
  // Changes whenever all senders should reduce their traffic at the same time to measure the min RTT. A
  // single sender cannot measure it, because the others keep the queue full.
  uint8_t dip = 0;

  friend bool operator==(const Incast&, const Incast&) = default;
};

}  // namespace verbena::congestion
