// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "base/bytes.h"
#include "wire/ethernet/flow_key.h"

namespace verbena::ethernet {

inline constexpr size_t kHashKeyBytes = 40;

// Returns the Toeplitz hash, as in receive side scaling (RSS), of up to the first 36 bytes of `input`.
uint32_t toeplitz(const std::array<uint8_t, kHashKeyBytes>& key, ConstBytes input);

// The header fields to hash, in this order: source address, destination address, source and destination port.
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

// Returns the hash over the `fields` (HashField bits) that the frame has; 0 if the frame has none of them.
uint32_t receive_hash(const std::array<uint8_t, kHashKeyBytes>& key, uint8_t fields, const FlowKey& frame);

}  // namespace verbena::ethernet
