// SPDX-License-Identifier: Apache-2.0
#include "transport/arrivals.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "base/bytes.h"

namespace verbena::transport {
namespace {

// Half the PSN space: beyond, old and new are not told apart.
constexpr uint32_t kFurthest = 1u << 23;

// In the first word between its highest bit and the PSN.
constexpr uint32_t kDipShift = 28;
constexpr uint32_t kDipMask = congestion::Incast::kDips - 1;
constexpr uint32_t kSendersShift = 24;
constexpr uint32_t kSendersMask = 15;
// The numbers of senders that can be told: the powers of the root of two.
constexpr std::array<uint8_t, kSendersMask + 1> kSenders = {1,  2,  2,  3,  4,  6,  8,   11,
                                                            16, 23, 32, 45, 64, 91, 128, 181};
static_assert(kSenders.back() == congestion::Incast::kMostSenders);

uint32_t bits_of(const congestion::Incast& incast) {
  const auto at = std::ranges::upper_bound(kSenders, incast.senders) - kSenders.begin();
  const auto senders = static_cast<uint32_t>(std::max<ptrdiff_t>(at, 1) - 1);
  return (incast.dip & kDipMask) << kDipShift | senders << kSendersShift;
}

congestion::Incast incast_of(uint32_t bits) {
  return {.senders = kSenders[bits >> kSendersShift & kSendersMask],
          .dip = static_cast<uint8_t>(bits >> kDipShift & kDipMask)};
}

}  // namespace

Arrivals Arrivals::read(ConstBytes payload) {
  Arrivals arrivals;
  if (payload.size() < 4) return arrivals;
  const auto begin = load_be<uint32_t>(payload.data());
  arrivals.expected = roce::Psn(begin);
  arrivals.continues = (begin & kContinues) != 0;
  arrivals.incast = incast_of(begin);
  uint32_t past = 0;
  for (size_t at = 4; at + kRangeBytes <= payload.size() && arrivals.count < kMost; at += kRangeBytes) {
    const auto distance = load_be<uint32_t>(&payload[at]);
    const auto count = load_be<uint32_t>(&payload[at + 4]);
    if (distance <= past || count == 0 || distance >= kFurthest || count >= kFurthest - distance) break;
    past = distance + count;
    arrivals.ranges[arrivals.count++] = {arrivals.expected + distance, count};
  }
  return arrivals;
}

uint32_t Arrivals::write(std::array<std::byte, kMostBytes>& payload) const {
  store_be<uint32_t>(payload.data(), expected.value() | bits_of(incast) | (continues ? kContinues : 0));
  std::byte* at = payload.data() + 4;
  for (uint32_t i = 0; i < count; ++i, at += kRangeBytes) {
    store_be(at, static_cast<uint32_t>(ranges[i].first - expected));
    store_be(at + 4, ranges[i].count);
  }
  return static_cast<uint32_t>(at - payload.data());
}

}  // namespace verbena::transport
