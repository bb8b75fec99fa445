// SPDX-License-Identifier: Apache-2.0
#include "transport/arrivals.h"

#include <cstring>

#include <endian.h>

namespace verbena::transport {
namespace {

uint32_t word_at(ConstBytes bytes, size_t offset) {
  uint32_t word = 0;
  std::memcpy(&word, bytes.data() + offset, sizeof word);
  return be32toh(word);
}

void put_word(std::byte* at, uint32_t value) {
  const uint32_t word = htobe32(value);
  std::memcpy(at, &word, sizeof word);
}

// Half the PSN space: beyond, old and new are not told apart.
constexpr uint32_t kFurthest = 1u << 23;

}  // namespace

Arrivals Arrivals::read(ConstBytes payload) {
  Arrivals arrivals;
  if (payload.size() < 4) return arrivals;
  arrivals.expected = roce::Psn(word_at(payload, 0));
  arrivals.continues = (word_at(payload, 0) & kContinues) != 0;
  uint32_t past = 0;
  for (size_t at = 4; at + kRangeBytes <= payload.size() && arrivals.count < kMost; at += kRangeBytes) {
    const uint32_t distance = word_at(payload, at);
    const uint32_t count = word_at(payload, at + 4);
    if (distance <= past || count == 0 || distance >= kFurthest || count >= kFurthest - distance) break;
    past = distance + count;
    arrivals.ranges[arrivals.count++] = {arrivals.expected + distance, count};
  }
  return arrivals;
}

uint32_t Arrivals::write(std::array<std::byte, kMostBytes>& payload) const {
  put_word(payload.data(), expected.value() | (continues ? kContinues : 0));
  std::byte* at = payload.data() + 4;
  for (uint32_t i = 0; i < count; ++i, at += kRangeBytes) {
    put_word(at, static_cast<uint32_t>(ranges[i].first - expected));
    put_word(at + 4, ranges[i].count);
  }
  return static_cast<uint32_t>(at - payload.data());
}

}  // namespace verbena::transport
