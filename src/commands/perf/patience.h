// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>

namespace verbena::perf {

// Notices that a test makes no progress any more, as happens when messages were lost that nothing repeats.
class Patience {
 public:
  static constexpr std::chrono::seconds kLimit{60};

  // Returns whether `progress` has been the same for kLimit. Loops call this function whenever they have
  // nothing to do. Only one of 2^20 calls reads the clock; the others return false.
  bool is_over(std::uint64_t progress) {
    constexpr std::uint32_t kBetweenLooks = 1 << 20;
    if (++asked_ % kBetweenLooks != 0) return false;
    const auto now = std::chrono::steady_clock::now();
    if (progress != progress_) {
      progress_ = progress;
      since_ = now;
    }
    return now - since_ >= kLimit;
  }

 private:
  std::uint32_t asked_ = 0;
  std::uint64_t progress_ = 0;
  std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
};

}  // namespace verbena::perf
