// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "base/bytes.h"
#include "wire/ethernet/flow_key.h"

namespace verbena::ethernet {

inline constexpr size_t kHashKeyBytes = 40;

// The Toeplitz hash of up to 36 bytes, as receive side scaling (RSS) defines it.
uint32_t toeplitz(const std::array<uint8_t, kHashKeyBytes>& key, ConstBytes input);

// The header fields to hash. Order: addresses, then ports, source first.
enum HashField : uint8_t {
  kHashSourceIpv4 = 1,
  kHashDestinationIpv4 = 2,
  kHashSourceIpv6 = 4,
  kHashDestinationIpv6 = 8,
  kHashSourceTcp = 16,
  kHashDestinationTcp = 32,
  kHashSourceUdp = 64,
  kHashDestinationUdp = 128,
};

// The hash over those of the selected fields that the frame has; 0 if it has none.
uint32_t receive_hash(const std::array<uint8_t, kHashKeyBytes>& key, uint8_t fields, const FlowKey& frame);

}  // namespace verbena::ethernet
