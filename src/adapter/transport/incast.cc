// SPDX-License-Identifier: Apache-2.0
#include "adapter/transport/incast.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <mutex>

namespace verbena::transport {

namespace {

constexpr uint32_t kDipShift = 28;
constexpr uint32_t kDipMask = congestion::Incast::kDips - 1;
constexpr uint32_t kSendersShift = 24;
constexpr uint32_t kSendersMask = 15;
// The numbers of senders that can be encoded: the powers of the square root of two.
constexpr std::array<uint8_t, kSendersMask + 1> kSenders = {1,  2,  2,  3,  4,  6,  8,   11,
                                                            16, 23, 32, 45, 64, 91, 128, 181};
static_assert(kSenders.back() == congestion::Incast::kMaxSenders);

}  // namespace

uint32_t incast_bits(const congestion::Incast& incast) {
  const auto at = std::ranges::upper_bound(kSenders, incast.senders) - kSenders.begin();
  const auto senders = static_cast<uint32_t>(std::max<ptrdiff_t>(at, 1) - 1);
  return (incast.dip & kDipMask) << kDipShift | senders << kSendersShift;
}

congestion::Incast incast_of_bits(uint32_t word) {
  return {.senders = kSenders[word >> kSendersShift & kSendersMask],
          .dip = static_cast<uint8_t>(word >> kDipShift & kDipMask)};
}

using congestion::Incast;

void IncastMeter::add(uint64_t bytes, TimePoint now) {
  const std::lock_guard guard(lock_);
  note(static_cast<double>(bytes), now);
  Incast incast{.senders = senders(), .dip = get().dip};
  const bool has_newcomers = incast.senders > senders_at_dip_ + senders_at_dip_ / 2;
  if (has_newcomers) until_next_ = kBeforeNewcomers;
  if (now - dipped_ >= until_next_) {
    until_next_ = std::min<Duration>(2 * until_next_, kBetweenDips);
    dipped_ = now;
    senders_at_dip_ = incast.senders;
    incast.dip = static_cast<uint8_t>((incast.dip + 1) % Incast::kDips);
  }
  incast_.store(incast, std::memory_order_relaxed);
}

void IncastMeter::note(double bytes, TimePoint now) {
  const int64_t interval = now.time_since_epoch() / kInterval;
  // The shards' times differ slightly: a late report counts for the current interval.
  if (interval > interval_) {
    last_ = interval == interval_ + 1 ? sums_ : Sums{};
    sums_ = {};
    interval_ = interval;
  }
  sums_.bytes += bytes;
  sums_.squares += bytes * bytes;
}

// The larger of two estimates, as not all queue pairs have reported in this interval yet.
uint32_t IncastMeter::senders() const {
  const double most = Incast::kMaxSenders;
  return static_cast<uint32_t>(std::lround(std::min(std::max(last_.senders(), sums_.senders()), most)));
}

}  // namespace verbena::transport
