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

// Keeps a block of a port's memory as it is, for as long as packets on their way may refer to it. It may
// outlive the port, and be dropped by any thread.
class BlockPin {
 public:
  // How many there are of a block, and what keeps that memory there.
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
  // Another of the same block.
  BlockPin again() const { return BlockPin(count_); }
  bool is_of_block_of(const BlockPin& other) const { return count_ == other.count_; }

 private:
  Count count_;
};

// The blocks that one requester's packets left from, each until these are acknowledged: then the receiver has
// taken them, and what is still on its way is repeated, and worth nothing.
//
// For the shard's lock holder, as the requester itself.
class BlockPins {
 public:
  static constexpr uint32_t kMax = 64;

  // `until`: past the last packet there. False: it cannot be held. REQUIRES: `until` never goes back
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

  std::unique_ptr<std::array<Held, kMax>> held_;  // made when it is first needed: few requesters have any
  uint32_t first_ = 0;
  uint32_t count_ = 0;
};

}  // namespace verbena::transport
