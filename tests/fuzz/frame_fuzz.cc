// SPDX-License-Identifier: Apache-2.0
// Arbitrary bytes as an Ethernet frame, and the rest of the input as a flow rule. No access goes out of
// bounds, steering follows its definition, and segments stay within their limits.
#include <algorithm>
#include <cstring>
#include <vector>

#include "fuzz/require.h"
#include "wire/ethernet/offloads.h"
#include "wire/ethernet/steering.h"

namespace verbena::ethernet {
namespace {

void check_steering(const FlowKey& key, ConstBytes rule_bytes) {
  SteeringRule rule, all;
  const size_t half = std::min(rule_bytes.size() / 2, sizeof(FlowKey));
  std::memcpy(static_cast<void*>(&rule.value), rule_bytes.data(), half);
  std::memcpy(static_cast<void*>(&rule.mask), rule_bytes.data() + half, half);
  rule.value = rule.value & rule.mask;
  all.kind = RuleKind::kAllDefault;
  SteeringTable table;
  table.add(rule);
  table.add(all);
  int steered = 0;
  bool by_rule = false;
  table.steer(key, [&](const SteeringRule& found) {
    ++steered;
    by_rule |= &found == &rule;
  });
  VERBENA_REQUIRE(steered == 1);
  VERBENA_REQUIRE(by_rule == ((key & rule.mask) == rule.value));
  table.remove(rule);
  table.remove(all);
  VERBENA_REQUIRE(table.empty());
}

void check_segments(ConstBytes frame, uint32_t payload_bytes) {
  const Segmentation segments(frame, payload_bytes);
  if (segments.count() == 1) return;
  // A buffer of exactly that size, so that the address sanitizer sees a write beyond it.
  std::vector<std::byte> room(segments.segment_bytes());
  for (uint32_t k = 0; k < segments.count(); ++k) {
    const uint32_t bytes = segments.segment(k, room.data());
    VERBENA_REQUIRE(bytes <= room.size());
    const auto headers = parse_headers({room.data(), bytes});
    VERBENA_REQUIRE(headers && checksums_good({room.data(), bytes}, *headers));
  }
}

void check_frame(ConstBytes input) {
  // On the heap, so that the sanitizer sees reads beyond it.
  std::vector<std::byte> frame(input.begin(), input.end());
  const auto headers = parse_headers(frame);
  VERBENA_REQUIRE(headers.has_value() == (frame.size() >= kHeaderBytes));
  if (!headers) return;
  VERBENA_REQUIRE(headers->network_offset <= frame.size());
  VERBENA_REQUIRE(headers->transport_offset <= frame.size());
  check_steering(headers->key, input);
  check_segments(frame, static_cast<uint32_t>(frame[0]));
  std::array<uint8_t, kHashKeyBytes> key{};
  std::memcpy(key.data(), frame.data(), std::min(frame.size(), key.size()));
  receive_hash(key, static_cast<uint8_t>(frame.back()), headers->key);
  checksums_good(frame, *headers);
  complete_checksum(frame, load_be<uint16_t>(frame.data()), load_be<uint16_t>(frame.data() + 2));
  fill_checksums(frame, *headers);
}

}  // namespace
}  // namespace verbena::ethernet

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  verbena::ethernet::check_frame({reinterpret_cast<const std::byte*>(data), size});
  return 0;
}
