// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/result.h"
#include "libraries/rsockets/buffer_address.h"

namespace verbena::rsockets {

// The number of entries in each side's table of granted buffers (GrantTable). The other side writes the
// table.
inline constexpr uint32_t kTableEntries = 2;

// The private data of a connection request and of its reply: introduces each side's buffers to the other.
struct ConnectData {
  static constexpr size_t kBytes = 40;
  static constexpr uint8_t kVersion = 1;

  uint16_t credits = 0;         // messages that the peer may send before it gets more credits
  uint32_t iomap_entries = 0;   // entries for mapped buffers, which follow `table` in memory
  ByteOrder order = kOwnOrder;  // the byte order of the side that sends these data
  BufferAddress table;          // the sender's table, in which the receiver announces granted buffers
  BufferAddress buffer;         // the first buffer that the sender grants

  std::array<std::byte, kBytes> encode() const;

  // Errors: EPROTO if the data are too short or the table has fewer than kTableEntries entries; EOPNOTSUPP
  // for another version.
  static Result<ConnectData> decode(ConstBytes from);
};

}  // namespace verbena::rsockets
