// SPDX-License-Identifier: Apache-2.0
#include "adapter/transport/sack.h"

#include "adapter/transport/incast.h"

namespace verbena::transport {
namespace {

// Half the PSN space: beyond it, old and new PSNs look alike.
constexpr uint32_t kFurthest = 1u << 23;

}  // namespace

Sack Sack::read(ConstBytes payload) {
  Sack arrivals;
  if (payload.size() < 4) return arrivals;
  const auto begin = load_be<uint32_t>(payload.data());
  arrivals.expected = roce::Psn(begin);
  arrivals.continues = (begin & kContinues) != 0;
  arrivals.incast = incast_of_bits(begin);
  uint32_t past = 0;
  for (size_t at = 4; at + kRangeBytes <= payload.size() && arrivals.count < kMax; at += kRangeBytes) {
    const auto distance = load_be<uint32_t>(&payload[at]);
    const auto count = load_be<uint32_t>(&payload[at + 4]);
    if (distance <= past || count == 0 || distance >= kFurthest || count >= kFurthest - distance) break;
    past = distance + count;
    arrivals.ranges[arrivals.count++] = {arrivals.expected + distance, count};
  }
  return arrivals;
}

uint32_t Sack::write(std::array<std::byte, kMaxBytes>& payload) const {
  store_be<uint32_t>(payload.data(), expected.value() | incast_bits(incast) | (continues ? kContinues : 0));
  std::byte* at = payload.data() + 4;
  for (uint32_t i = 0; i < count; ++i, at += kRangeBytes) {
    store_be(at, static_cast<uint32_t>(ranges[i].first - expected));
    store_be(at + 4, ranges[i].count);
  }
  return static_cast<uint32_t>(at - payload.data());
}

}  // namespace verbena::transport
