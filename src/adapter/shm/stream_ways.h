// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/time.h"

namespace verbena::engine {

// Which way long payloads go to another process while one follows the other: through a ring of the one length
// or the other, into which we copy and out of which the reader does; or not through it at all, as they stay
// where they are until the reader fetches them by the kernel (transport::LentPayload). Which is fastest
// depends on where the two processors are and what caches they have in common: each is twice to five times as
// fast as the others somewhere. A hypervisor may change that at any time. So all are tried now and then, each
// for some milliseconds, and what they carry decides.
//
// Pure. For the shard's lock holder.
class StreamWays {
 public:
  enum class Way : uint8_t { kWideRing, kWidestRing, kLent };

  // In bytes. Payloads that are shorter count for nothing.
  static constexpr uint32_t kLong = 1 << 12;

  Way way() const { return way_; }

  // So many bytes have gone so far, by whatever way. Answers how they go from now on.
  // `may_lend`: whether the reader fetches
  Way follow(uint64_t streamed, TimePoint now, bool may_lend) {
    if (is_trying_) {
      try_on(streamed, now, may_lend);
    } else if (streamed >= kFirst && now >= compare_at_) {
      is_trying_ = true;
      began_at_ = now;
      begin(Way::kWideRing, streamed);
    } else if (way_ == Way::kLent && !may_lend) {
      way_ = Way::kWideRing;
    }
    return way_;
  }

 private:
  static constexpr size_t kWays = 3;
  // So much goes before anything is tried. Who sends less does not notice.
  static constexpr uint64_t kFirst = 32 << 20;
  // How long what has been found out holds: at first, when a program may still be beginning, and in the end.
  static constexpr Duration kHoldsAtFirst = std::chrono::milliseconds(125);
  static constexpr Duration kHolds = std::chrono::seconds(1);
  // At first there is still under way what went by the way before. Then so much is measured, or for so long.
  static constexpr uint64_t kSettles = 4 << 20;
  static constexpr uint64_t kMeasured = 16 << 20;
  static constexpr Duration kMeasuredFor = std::chrono::milliseconds(4);
  // A comparison that takes longer is of a program that is not held up by any way.
  static constexpr Duration kTooLong = std::chrono::milliseconds(100);
  // A way must be so much faster to be taken instead of those before it.
  static constexpr double kWorthIt = 1.1;

  void begin(Way way, uint64_t streamed) {
    way_ = way;
    began_with_ = streamed;
    is_measuring_ = false;
  }

  void try_on(uint64_t streamed, TimePoint now, bool may_lend) {
    if (now - began_at_ > kTooLong) return end(best_, now);
    if (!is_measuring_) {
      if (streamed - began_with_ < kSettles) return;
      is_measuring_ = true;
      began_with_ = streamed;
      measures_since_ = now;
      return;
    }
    const uint64_t bytes = streamed - began_with_;
    if (bytes < kMeasured && now - measures_since_ < kMeasuredFor) return;
    const double time = static_cast<double>((now - measures_since_).count() + 1);
    rates_[static_cast<size_t>(way_)] = static_cast<double>(bytes) / time;
    const Way last = may_lend ? Way::kLent : Way::kWidestRing;
    if (way_ < last) return begin(static_cast<Way>(static_cast<uint8_t>(way_) + 1), streamed);
    end(fastest(way_), now);
  }

  Way fastest(Way last) const {
    size_t found = 0;
    for (size_t i = 1; i <= static_cast<size_t>(last); ++i) {
      if (rates_[i] > kWorthIt * rates_[found]) found = i;
    }
    return static_cast<Way>(found);
  }

  void end(Way way, TimePoint now) {
    is_trying_ = false;
    way_ = best_ = way;
    compare_at_ = now + holds_;
    holds_ = std::min(2 * holds_, kHolds);
  }

  Way way_ = Way::kWideRing;
  Way best_ = Way::kWideRing;  // of the latest comparison
  bool is_trying_ = false;
  bool is_measuring_ = false;
  TimePoint compare_at_{};
  Duration holds_ = kHoldsAtFirst;
  TimePoint began_at_{};     // the comparison
  uint64_t began_with_ = 0;  // bytes, by way_, or since it is measured
  TimePoint measures_since_{};
  std::array<double, kWays> rates_{};
};

}  // namespace verbena::engine
