// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace verbena::congestion {

// What a receiver tells its senders of each other. One word, for an atomic of it to be one instruction.
struct alignas(8) Incast {
  static constexpr uint32_t kMaxSenders = 181;
  static constexpr uint8_t kDips = 8;  // they are numbered in turn

  uint32_t senders = 1;  // had all of them equal parts
  // Another number each time that all are to look for the round trip without a queue: by itself nobody finds
  // that beside others who fill the queue meanwhile.
  uint8_t dip = 0;

  friend bool operator==(const Incast&, const Incast&) = default;
};

}  // namespace verbena::congestion
