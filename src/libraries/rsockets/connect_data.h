// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/result.h"
#include "libraries/rsockets/buffer_address.h"

namespace verbena::rsockets {

// Every side has a table of this many granted buffers, which the other side writes.
inline constexpr uint32_t kTableEntries = 2;

// What the two sides tell each other in the private data of the connection request and of its answer.
struct ConnectData {
  static constexpr size_t kBytes = 40;
  static constexpr uint8_t kVersion = 1;

  uint16_t credits = 0;         // messages that the other side may send before it hears of more
  uint32_t iomap_entries = 0;   // places for mapped buffers behind the table; see iomap_scale.h
  ByteOrder order = kOwnOrder;  // of the speaker
  BufferAddress table;          // where the speaker wants to be told of granted buffers
  BufferAddress buffer;         // the first buffer granted

  std::array<std::byte, kBytes> encode() const;

  // Errors: EPROTO for what is too short or cannot be worked with, EOPNOTSUPP for another version.
  static Result<ConnectData> decode(ConstBytes from);
};

}  // namespace verbena::rsockets
