// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

namespace verbena::rsockets {

// The maximum size of a table of mapped buffers, in entries. The connection data encode the size in one byte.
// Sizes up to 128 are stored as is; larger sizes are stored in units of 256, rounded down, with the top bit
// set.
inline constexpr uint32_t kMaxIomapEntries = 127 * 256;

constexpr uint8_t scale_iomap_entries(uint32_t entries) {
  entries = std::min(entries, kMaxIomapEntries);
  return static_cast<uint8_t>(entries <= 128 ? entries : 128 | entries >> 8);
}

constexpr uint32_t unscale_iomap_entries(uint8_t scaled) {
  return scaled <= 128 ? scaled : (scaled & 127u) << 8;
}

// Returns `entries` rounded down to a table size that the encoding can represent.
constexpr uint32_t representable_iomap_entries(uint32_t entries) {
  return unscale_iomap_entries(scale_iomap_entries(entries));
}

}  // namespace verbena::rsockets
