// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

namespace verbena::rsockets {

// Encodes the size of the table of mapped buffers in one byte. Sizes up to 128 are stored as is, larger ones
// in units of 256 with the top bit set, rounded down.
inline constexpr uint32_t kMaxIomapEntries = 127 * 256;

constexpr uint8_t scale_iomap_entries(uint32_t entries) {
  entries = std::min(entries, kMaxIomapEntries);
  return static_cast<uint8_t>(entries <= 128 ? entries : 128 | entries >> 8);
}

constexpr uint32_t unscale_iomap_entries(uint8_t scaled) {
  return scaled <= 128 ? scaled : (scaled & 127u) << 8;
}

// Returns the table size that the peer decodes from the encoding of `entries`.
constexpr uint32_t representable_iomap_entries(uint32_t entries) {
  return unscale_iomap_entries(scale_iomap_entries(entries));
}

}  // namespace verbena::rsockets
