// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>

namespace verbena::roce {

// A packet sequence number: 24 bits that wrap around (IBTA volume 1, 9.7.1). PSNs are compared serially: a is
// before b if b is at most 2^23 steps after a. That is sound because no window exceeds half of the 2^24 PSNs.
class Psn {
 public:
  static constexpr uint32_t kMask = 0xffffff;

  constexpr Psn() = default;
  constexpr explicit Psn(uint32_t value) : value_(value & kMask) {}

  constexpr uint32_t value() const { return value_; }
  constexpr Psn operator+(uint32_t steps) const { return Psn(value_ + steps); }
  constexpr Psn operator-(uint32_t steps) const { return Psn(value_ - steps); }
  constexpr Psn& operator++() { return *this = *this + 1; }

  // Returns the number of steps from `other` to this PSN, in [-2^23, 2^23).
  constexpr int32_t operator-(Psn other) const {
    return static_cast<int32_t>((value_ - other.value_) << 8) >> 8;
  }
  constexpr bool is_before(Psn other) const { return *this - other < 0; }
  constexpr bool is_after(Psn other) const { return *this - other > 0; }

  friend constexpr bool operator==(Psn, Psn) = default;

 private:
  uint32_t value_ = 0;
};

}  // namespace verbena::roce
