// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>

#include "libraries/rsockets/buffer_address.h"
#include "libraries/rsockets/connect_data.h"

namespace verbena::rsockets {

// The table in our memory in which the peer announces the buffers that it grants, one entry after the other,
// cyclically. Call take() only after a message of credits that wrote exactly one entry's bytes. The bytes of
// a WRITE arrive in no defined order, but the message follows all of them (IBTA volume 1, section 9.5). A
// taken entry is copied and cleared at once, so later writes of the peer do not change it. Only for the
// thread that handles completions.
class GrantTable {
 public:
  static constexpr size_t kBytes = kTableEntries * BufferAddress::kBytes;

  // REQUIRES: kBytes bytes at `memory`. Starts at the second entry: the connection data granted the first
  // buffer.
  explicit GrantTable(std::byte* memory) : memory_(memory) {}

  // Takes the next granted buffer. Returns nullopt if the entry is empty, because the peer wrote something
  // else. REQUIRES: before each call, a message of credits has announced another entry
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
