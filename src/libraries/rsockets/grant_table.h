// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>

#include "libraries/rsockets/buffer_address.h"
#include "libraries/rsockets/connect_data.h"

namespace verbena::rsockets {

// The table in our memory that the peer writes whenever it grants a buffer, entry after entry in turn.
// The thread that reads completions looks here after each message of credits that came with as many bytes as
// an entry has, and never ahead of it: the entry's bytes arrive in no order that a reader could count on, the
// message comes after all of them (IBTA volume 1, section 9.5). An entry is taken out at once: what the peer
// may write later is none of our business any more.
class GrantTable {
 public:
  static constexpr size_t kBytes = kTableEntries * BufferAddress::kBytes;

  // REQUIRES: kBytes bytes. The first entry was used up by the connection data.
  explicit GrantTable(std::byte* memory) : memory_(memory) {}

  // The next granted buffer; none where the message came with other bytes than an entry's.
  // REQUIRES: a message said so, for each call one
  std::optional<BufferAddress> take() {
    std::byte* entry = memory_ + next_ * BufferAddress::kBytes;
    const BufferAddress granted = BufferAddress::decode(entry, kOwnOrder);
    if (granted.length == 0) return std::nullopt;
    std::memset(entry, 0, BufferAddress::kBytes);
    next_ = (next_ + 1) % kTableEntries;
    return granted;
  }

 private:
  std::byte* memory_;
  uint32_t next_ = 1;
};

}  // namespace verbena::rsockets
