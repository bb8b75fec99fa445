// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "adapter/congestion/incast.h"

namespace verbena::transport {

// The seven bits between the highest bit of a word and the PSN in its lowest 24 that tell a sender of others
// to the same process: three are the number of the dip, four how many they are, as a power of the root of
// two.
uint32_t incast_bits(const congestion::Incast& incast);
congestion::Incast incast_of_bits(uint32_t word);

}  // namespace verbena::transport
