// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace verbena {

using Bytes = std::span<std::byte>;
using ConstBytes = std::span<const std::byte>;

// Reverses the bytes of an integer of 2, 4 or 8 bytes.
template <class T>
constexpr T byteswap(T value) {
  if constexpr (sizeof(T) == 2) return static_cast<T>(__builtin_bswap16(static_cast<uint16_t>(value)));
  if constexpr (sizeof(T) == 4) return static_cast<T>(__builtin_bswap32(static_cast<uint32_t>(value)));
  if constexpr (sizeof(T) == 8) return static_cast<T>(__builtin_bswap64(static_cast<uint64_t>(value)));
}

// Load and store integers at any alignment in big-endian order, the byte order of packets.
template <class T>
T load_be(const void* from) {
  static_assert(std::endian::native == std::endian::little);
  T value;
  std::memcpy(&value, from, sizeof value);
  return byteswap(value);
}

template <class T>
void store_be(void* to, T value) {
  value = byteswap(value);
  std::memcpy(to, &value, sizeof value);
}

inline uint32_t load_be24(const void* from) {
  const auto* b = static_cast<const uint8_t*>(from);
  return static_cast<uint32_t>(b[0]) << 16 | static_cast<uint32_t>(b[1]) << 8 | b[2];
}

inline void store_be24(void* to, uint32_t value) {
  auto* b = static_cast<uint8_t*>(to);
  b[0] = static_cast<uint8_t>(value >> 16);
  b[1] = static_cast<uint8_t>(value >> 8);
  b[2] = static_cast<uint8_t>(value);
}

}  // namespace verbena
