// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "adapter/congestion/incast.h"

namespace verbena::transport {

// Encodes an Incast in seven bits: those between the highest bit of a word and the PSN in its lowest 24.
// Three bits are the dip number, four the number of senders as a power of the square root of two.
uint32_t incast_bits(const congestion::Incast& incast);
congestion::Incast incast_of_bits(uint32_t word);

}  // namespace verbena::transport
