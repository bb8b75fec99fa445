// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "base/bytes.h"
#include "management/mad/subnet.h"

namespace verbena::mad {

// A field of a record that a query may select by: its bit in the query's component mask, and its position in
// the record (IBTA volume 1, 15.2.5).
struct Component {
  uint8_t mask_bit;
  uint16_t at;    // in bits, from the most significant bit of the first byte
  uint16_t bits;  // length
};

// A type of record that subnet administration returns.
struct RecordKind {
  uint16_t attribute;
  uint16_t bytes;  // length of a record; in a table each record begins at a multiple of eight bytes
  std::span<const Component> components;
  // Builds each record of this type and passes it to `emit`, until `emit` returns false.
  void (*make)(const Subnet& subnet, const std::function<bool(ConstBytes record)>& emit);

  size_t stride() const { return (bytes + size_t{7}) / 8 * 8; }
};

inline constexpr uint16_t kPortInfoRecord = 0x0012;
inline constexpr size_t kCapabilitiesInPortInfoRecord = 24;
inline constexpr uint16_t kPathRecord = 0x0035;
inline constexpr size_t kDestinationInPathRecord = 8;
inline constexpr size_t kMaxRecordBytes = 112;

// Returns the record type with this attribute ID; nullptr if there is none.
const RecordKind* record_kind(uint16_t attribute);

}  // namespace verbena::mad
