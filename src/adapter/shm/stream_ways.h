// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/time.h"

namespace verbena::engine {

// Chooses one of three ways to send long payloads to another process in a stream. Two are payload rings of
// different sizes (kWideRing, kWidestRing): we copy into the ring, and the reader copies out of it. In the
// third, payloads stay where they are, and the reader fetches them by a system call (kLent: rendezvous,
// transport::LentPayload).
//
// The fastest way depends on the CPUs of the two processes and on the caches that these CPUs share. Each way
// is two to five times as fast as the others on some machine. A hypervisor may move the processes to other
// CPUs at any time. So all ways are tried now and then for some milliseconds, and the measured rate decides.
//
// Pure. For the shard's lock holder.
class StreamWays {
 public:
  enum class Way : uint8_t { kWideRing, kWidestRing, kLent };

  // In bytes. Shorter payloads are not counted.
  static constexpr uint32_t kLong = 1 << 12;

  Way way() const { return way_; }

  // Returns the way for the payloads from now on. `streamed` is the number of bytes of long payloads so far,
  // by any way. `may_lend` says whether the reader can fetch payloads from our memory. While ways are
  // compared, the result may be kLent although `may_lend` is false. So callers check both.
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
  // In bytes. Nothing is tried before this much has gone, so short streams do not notice.
  static constexpr uint64_t kFirst = 32 << 20;
  // A comparison is valid for this long: the first one, as a program may still be starting, and later ones.
  static constexpr Duration kHoldsAtFirst = std::chrono::milliseconds(125);
  static constexpr Duration kHolds = std::chrono::seconds(1);
  // kSettles, kMeasured: bytes. After a change to another way, payloads of the former way are still in
  // flight, so the first kSettles bytes are not measured. Then the rate is measured over kMeasured bytes or
  // the time kMeasuredFor, whichever ends first.
  static constexpr uint64_t kSettles = 4 << 20;
  static constexpr uint64_t kMeasured = 16 << 20;
  static constexpr Duration kMeasuredFor = std::chrono::milliseconds(4);
  // A comparison that takes longer is dropped: no way slows this program down.
  static constexpr Duration kTooLong = std::chrono::milliseconds(100);
  // A way must be this many times as fast as those tried before it.
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
  Way best_ = Way::kWideRing;  // the result of the latest comparison
  bool is_trying_ = false;
  bool is_measuring_ = false;
  TimePoint compare_at_{};
  Duration holds_ = kHoldsAtFirst;
  TimePoint began_at_{};     // when the comparison began
  uint64_t began_with_ = 0;  // bytes: `streamed` when way_ was chosen, or when its measuring began
  TimePoint measures_since_{};
  std::array<double, kWays> rates_{};
};

}  // namespace verbena::engine
