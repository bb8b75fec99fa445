// SPDX-License-Identifier: Apache-2.0
#include "adapter/transport/incast_meter.h"

#include <algorithm>
#include <cmath>
#include <mutex>

namespace verbena::transport {

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
