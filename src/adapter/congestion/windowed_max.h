// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace verbena::congestion {

// Windowed maximum: the largest of the values of the last kRounds rounds.
class WindowedMax {
 public:
  static constexpr uint32_t kRounds = 10;

  // Adds a value of round `round`, which never decreases.
  void add(uint64_t round, uint64_t value) {
    if (round != round_) {
      // Rounds without a value count as zero.
      for (uint64_t r = round_ + 1; r <= round && r - round_ <= kRounds; ++r) values_[r % kRounds] = 0;
      round_ = round;
      max_ = *std::max_element(values_.begin(), values_.end());
    }
    uint64_t& here = values_[round % kRounds];
    here = std::max(here, value);
    max_ = std::max(max_, value);
  }
  uint64_t get() const { return max_; }
  // Lowers all values so far to `value`, if they are larger.
  void cut(uint64_t value) {
    for (uint64_t& other : values_) other = std::min(other, value);
    max_ = std::min(max_, value);
  }

 private:
  std::array<uint64_t, kRounds> values_{};
  uint64_t round_ = 0;
  uint64_t max_ = 0;
};

}  // namespace verbena::congestion
