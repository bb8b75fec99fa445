// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/bytes.h"

namespace verbena::rsockets {

// The byte order of a table in memory. A table that the peer writes has its owner's byte order, so that the
// owner reads it without conversion. Each side announces its byte order in the connection data.
enum class ByteOrder : uint8_t { kLittle, kBig };
inline constexpr ByteOrder kOwnOrder =
    std::endian::native == std::endian::little ? ByteOrder::kLittle : ByteOrder::kBig;

template <class T>
T in_order(T value, ByteOrder order) {
  return order == kOwnOrder ? value : byteswap(value);
}

// A buffer that the peer may write to by RDMA WRITE.
struct BufferAddress {
  static constexpr size_t kBytes = 16;
  uint64_t address = 0;
  uint32_t key = 0;
  uint32_t length = 0;  // in bytes; the length of a table is in entries

  std::array<std::byte, kBytes> encode(ByteOrder order) const {
    const uint64_t address_word = in_order(address, order);
    const uint32_t words[] = {in_order(key, order), in_order(length, order)};
    std::array<std::byte, kBytes> bytes;
    std::memcpy(bytes.data(), &address_word, 8);
    std::memcpy(bytes.data() + 8, words, 8);
    return bytes;
  }

  // REQUIRES: kBytes bytes at `from`
  static BufferAddress decode(const std::byte* from, ByteOrder order) {
    uint64_t address_word;
    uint32_t words[2];
    std::memcpy(&address_word, from, 8);
    std::memcpy(words, from + 8, 8);
    return {in_order(address_word, order), in_order(words[0], order), in_order(words[1], order)};
  }

  friend bool operator==(const BufferAddress&, const BufferAddress&) = default;
};

}  // namespace verbena::rsockets
