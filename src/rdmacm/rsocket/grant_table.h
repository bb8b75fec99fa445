// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "rdmacm/rsocket/buffer_address.h"
#include "rdmacm/rsocket/connect_data.h"

namespace verbena::rsocket {

// The table in our memory that the peer writes whenever it grants a buffer, entry after entry in turn.
// Whoever reads completions looks here after each message of credits. An entry is taken out at once: what the
// peer may write later is none of our business any more.
class GrantTable {
 public:
  static constexpr size_t kBytes = kTableEntries * BufferAddress::kBytes;

  // REQUIRES: kBytes bytes, 16-aligned. The first entry was used up by the connection data.
  explicit GrantTable(std::byte* memory) : memory_(memory) {}

  // The next granted buffer, if there is one.
  std::optional<BufferAddress> take() {
    std::byte* entry = memory_ + next_ * BufferAddress::kBytes;
    // The length is written last, and is what makes an entry valid.
    std::atomic_ref<uint32_t> length(*reinterpret_cast<uint32_t*>(entry + kLengthAt));
    if (length.load(std::memory_order_acquire) == 0) return std::nullopt;
    BufferAddress granted = BufferAddress::decode(entry, kOwnOrder);
    length.store(0, std::memory_order_relaxed);
    if (granted.length == 0) return std::nullopt;  // changed under our hands
    next_ = (next_ + 1) % kTableEntries;
    return granted;
  }

 private:
  static constexpr size_t kLengthAt = 12;
  std::byte* memory_;
  uint32_t next_ = 1;
};

}  // namespace verbena::rsocket
