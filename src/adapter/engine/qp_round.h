// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "wire/roce/qpn.h"

namespace verbena::engine {

// The occupied places of a shard's table of QPs. next() visits them in turn, so that a caller can handle a
// few at a time. Not thread-safe.
class QpRound {
 public:
  void add(uint32_t index) { words_[index / 64] |= bit(index); }
  void remove(uint32_t index) { words_[index / 64] &= ~bit(index); }

  // Returns the next occupied place, in a circle. REQUIRES: at least one place is occupied
  uint32_t next() {
    at_ = (at_ + 1) % roce::Qpn::kPerSlot;
    uint64_t word = words_[at_ / 64] & (~uint64_t{0} << at_ % 64);
    size_t which = at_ / 64;
    while (word == 0) word = words_[which = (which + 1) % words_.size()];
    return at_ = static_cast<uint32_t>(which * 64 + static_cast<size_t>(std::countr_zero(word)));
  }

 private:
  static_assert(roce::Qpn::kPerSlot % 64 == 0);
  static uint64_t bit(uint32_t index) { return uint64_t{1} << index % 64; }

  std::array<uint64_t, roce::Qpn::kPerSlot / 64> words_{};
  uint32_t at_ = 0;
};

}  // namespace verbena::engine
