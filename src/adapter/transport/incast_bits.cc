// SPDX-License-Identifier: Apache-2.0
#include "adapter/transport/incast_bits.h"

#include <algorithm>
#include <array>
#include <cstddef>

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

}  // namespace verbena::transport
