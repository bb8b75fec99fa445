// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "base/bytes.h"
#include "management/mad/subnet.h"

namespace verbena::mad {

// A component of a record that a query may match: its bit in the mask and its position (IBTA volume 1,
// 15.2.5).
struct Component {
  uint8_t mask_bit;
  uint16_t at;    // in bits, from the most significant bit of the first byte
  uint16_t bits;  // length
};

// A record type of subnet administration.
struct RecordKind {
  uint16_t attribute;
  uint16_t bytes;  // length of a record; in a table each begins at a multiple of eight
  std::span<const Component> components;
  // Calls `emit` for every record until it returns false.
  void (*make)(const Subnet& subnet, const std::function<bool(ConstBytes record)>& emit);

  size_t stride() const { return (bytes + size_t{7}) / 8 * 8; }
};

inline constexpr uint16_t kPortInfoRecord = 0x0012;
inline constexpr size_t kCapabilitiesInPortInfoRecord = 24;
inline constexpr uint16_t kPathRecord = 0x0035;
inline constexpr size_t kDestinationInPathRecord = 8;
inline constexpr size_t kMaxRecordBytes = 112;

// The record type of an attribute; nullptr if there is none.
const RecordKind* record_kind(uint16_t attribute);

}  // namespace verbena::mad
