// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"

namespace verbena::roce {

// A management datagram (IBTA volume 1, 13.4): 24 bytes of header, 232 of data, always full length.
inline constexpr size_t kMadBytes = 256;
inline constexpr size_t kMadHeaderBytes = 24;

// Offsets in the header (13.4.3), which all classes have.
inline constexpr size_t kBaseVersionAt = 0;
inline constexpr size_t kClassAt = 1;
inline constexpr size_t kClassVersionAt = 2;
inline constexpr size_t kMethodAt = 3;
inline constexpr size_t kStatusAt = 4;
inline constexpr size_t kTransactionAt = 8;
inline constexpr size_t kAttributeAt = 16;
inline constexpr size_t kModifierAt = 20;

inline constexpr uint8_t kMadBaseVersion = 1;
inline constexpr uint8_t kMadMethodSend = 0x03;

// QP1, which sends and receives the datagrams of all classes except subnet management, and its Q_Key
// (10.2.5).
inline constexpr uint32_t kGsiQpn = 1;
inline constexpr uint32_t kGsiQkey = 0x80010000;

struct Mad {
  std::array<std::byte, kMadBytes> bytes{};

  const std::byte* at(size_t offset) const { return bytes.data() + offset; }
  std::byte* at(size_t offset) { return bytes.data() + offset; }
  uint8_t u8(size_t offset) const { return static_cast<uint8_t>(bytes[offset]); }
  void set_u8(size_t offset, uint8_t value) { bytes[offset] = std::byte{value}; }
  template <class T>
  T get(size_t offset) const {
    return load_be<T>(at(offset));
  }
  template <class T>
  void set(size_t offset, T value) {
    store_be(at(offset), value);
  }
  // Sets the header fields that identify a kind of message.
  void set_kind(uint8_t management_class, uint8_t class_version, uint8_t method, uint16_t attribute) {
    set_u8(kBaseVersionAt, kMadBaseVersion);
    set_u8(kClassAt, management_class);
    set_u8(kClassVersionAt, class_version);
    set_u8(kMethodAt, method);
    set(kAttributeAt, attribute);
  }

  friend bool operator==(const Mad&, const Mad&) = default;
};
static_assert(sizeof(Mad) == kMadBytes);

}  // namespace verbena::roce
