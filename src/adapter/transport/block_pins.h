// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

#include "wire/roce/psn.h"

namespace verbena::transport {

// Pins one block of a port's memory while packets in flight may refer to it. A pin may outlive the port, and
// any thread may drop it.
class BlockPin {
 public:
  // Number of pins on a block; the shared pointer also keeps the block's memory alive.
  using Count = std::shared_ptr<std::atomic<uint32_t>>;

  BlockPin() = default;
  explicit BlockPin(Count count) : count_(std::move(count)) {
    count_->fetch_add(1, std::memory_order_relaxed);
  }
  BlockPin(BlockPin&& other) noexcept = default;
  BlockPin& operator=(BlockPin&& other) noexcept {
    std::swap(count_, other.count_);
    return *this;
  }
  ~BlockPin() {
    if (count_ != nullptr) count_->fetch_sub(1, std::memory_order_release);
  }

  explicit operator bool() const { return count_ != nullptr; }
  // Returns another pin on the same block.
  BlockPin again() const { return BlockPin(count_); }
  bool is_of_block_of(const BlockPin& other) const { return count_ == other.count_; }

 private:
  Count count_;
};

// Pins the blocks that a requester's packets are sent from without a copy, until these packets are
// acknowledged. After that the receiver has the packets: copies still in flight are duplicates, whose
// contents do not matter.
//
// For the shard's lock holder, like the requester.
class BlockPins {
 public:
  static constexpr uint32_t kMax = 64;

  // Keeps a pin until everything before `until` is acknowledged: the PSN after the block's last packet.
  // Returns false if kMax blocks are pinned or memory has run out. REQUIRES: `until` never decreases
  bool hold(roce::Psn until, const BlockPin& pin) noexcept {
    if (count_ > 0 && at(count_ - 1).pin.is_of_block_of(pin)) {
      at(count_ - 1).until = until;
      return true;
    }
    if (held_ == nullptr) held_.reset(new (std::nothrow) std::array<Held, kMax>);
    if (held_ == nullptr || count_ == kMax) return false;
    at(count_++) = {until, pin.again()};
    return true;
  }
  // Drops the pins that are not needed once all PSNs before `unacked` are acknowledged.
  void release_before(roce::Psn unacked) {
    while (count_ > 0 && !unacked.is_before(at(0).until)) release_first();
  }
  void clear() {
    while (count_ > 0) release_first();
  }
  uint32_t count() const { return count_; }

 private:
  struct Held {
    roce::Psn until;
    BlockPin pin;
  };
  Held& at(uint32_t index) { return (*held_)[(first_ + index) % kMax]; }
  void release_first() {
    at(0).pin = BlockPin();
    first_ = (first_ + 1) % kMax;
    --count_;
  }

  std::unique_ptr<std::array<Held, kMax>> held_;  // allocated on first use: few requesters need it
  uint32_t first_ = 0;
  uint32_t count_ = 0;
};

}  // namespace verbena::transport
