// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

#include "libraries/rsockets/buffer_address.h"

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

// An entry in a table of mapped buffers: the writer's offsets from `offset` on stand for the bytes of
// `buffer`.
struct IomapEntry {
  static constexpr size_t kBytes = 24;
  uint64_t offset = 0;
  BufferAddress buffer;

  std::array<std::byte, kBytes> encode(ByteOrder order) const {
    std::array<std::byte, kBytes> bytes;
    const uint64_t word = in_order(offset, order);
    std::memcpy(bytes.data(), &word, 8);
    std::memcpy(bytes.data() + 8, buffer.encode(order).data(), BufferAddress::kBytes);
    return bytes;
  }
};

// The table in our memory in which the peer lists the buffers that its application has mapped with riomap().
// The peer may write at any time, so each lookup copies an entry before it checks and uses it.
class IomapTable {
 public:
  IomapTable(const std::byte* memory, uint32_t entries) : memory_(memory), entries_(entries) {}

  // Returns the part of a mapped buffer from `offset` to the buffer's end; nullopt if no mapped buffer
  // contains `offset`.
  std::optional<BufferAddress> find(uint64_t offset) const {
    for (uint32_t i = 0; i < entries_; ++i) {
      std::array<std::byte, IomapEntry::kBytes> copy;
      std::memcpy(copy.data(), memory_ + i * IomapEntry::kBytes, copy.size());
      uint64_t begin;
      std::memcpy(&begin, copy.data(), 8);
      const BufferAddress buffer = BufferAddress::decode(copy.data() + 8, kOwnOrder);
      const uint64_t skipped = offset - begin;
      if (offset < begin || skipped >= buffer.length) continue;
      return BufferAddress{buffer.address + skipped, buffer.key,
                           static_cast<uint32_t>(buffer.length - skipped)};
    }
    return std::nullopt;
  }

 private:
  const std::byte* memory_;
  const uint32_t entries_;
};

}  // namespace verbena::rsockets
