// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace verbena::perf {

// A log-linear histogram of times, as HdrHistogram. Each power of two has 32 buckets of equal width, so that
// a bucket is at most 3 % wide. The histogram takes every number of 64 bits, and adding takes a few
// instructions.
class Histogram {
 public:
  void add(std::uint64_t value) {
    ++counts_[index_of(value)];
    ++count_;
    largest_ = std::max(largest_, value);
  }
  std::uint64_t count() const { return count_; }
  std::uint64_t largest() const { return largest_; }

  // Returns the value that `part` of all values, such as 0.99, do not exceed. The result may be up to 3 % too
  // large. Returns 0 if there are no values.
  std::uint64_t percentile(double part) const {
    const auto wanted = static_cast<std::uint64_t>(std::ceil(static_cast<double>(count_) * part));
    std::uint64_t seen = 0;
    for (std::size_t i = 0; i < kBuckets; ++i) {
      seen += counts_[i];
      if (seen >= wanted && seen != 0) return std::min(upper(i), largest_);
    }
    return largest_;
  }
  // Calls `show` with the limits and the number of each bucket that has values: lower <= value <= upper.
  template <class Show>
  void for_each(const Show& show) const {
    for (std::size_t i = 0; i < kBuckets; ++i) {
      if (counts_[i] != 0) show(lower(i), upper(i), counts_[i]);
    }
  }

 private:
  static constexpr int kBits = 5;
  static constexpr std::uint64_t kWidth = 1 << kBits;  // buckets per power of two
  static constexpr std::size_t kBuckets = (64 - kBits + 1) * kWidth;

  static std::size_t index_of(std::uint64_t value) {
    if (value < kWidth) return value;
    const int shift = static_cast<int>(std::bit_width(value)) - kBits - 1;
    return (static_cast<std::size_t>(shift) + 1) * kWidth + ((value >> shift) - kWidth);
  }
  static std::uint64_t lower(std::size_t index) {
    if (index < kWidth) return index;
    return (index % kWidth + kWidth) << (index / kWidth - 1);
  }
  static std::uint64_t upper(std::size_t index) {
    return index + 1 < kBuckets ? lower(index + 1) - 1 : ~std::uint64_t{0};
  }

  std::array<std::uint64_t, kBuckets> counts_{};
  std::uint64_t count_ = 0;
  std::uint64_t largest_ = 0;
};

}  // namespace verbena::perf
