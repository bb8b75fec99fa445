// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "adapter/congestion/incast.h"

namespace verbena::transport {

// Encodes an Incast in bits 24 to 30 of a 32-bit word, above a PSN. Bits 28 to 30 are the dip number. Bits 24
// to 27 are the number of senders, as a power of the square root of two, rounded down.
uint32_t incast_bits(const congestion::Incast& incast);
congestion::Incast incast_of_bits(uint32_t word);

}  // namespace verbena::transport
