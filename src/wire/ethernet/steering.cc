// SPDX-License-Identifier: Apache-2.0
#include "wire/ethernet/steering.h"

#include <algorithm>
#include <tuple>

namespace verbena::ethernet {

void SteeringTable::add(SteeringRule& rule) {
  if (rule.kind != RuleKind::kMatch) {
    defaults_.push_back(&rule);
    ++count_;
    return;
  }
  const uint32_t bits = weight(rule.mask);
  auto group = std::find_if(groups_.begin(), groups_.end(), [&](const Group& g) {
    return g.priority == rule.priority && g.mask == rule.mask;
  });
  if (group == groups_.end()) {
    group = std::find_if(groups_.begin(), groups_.end(), [&](const Group& g) {
      return g.priority > rule.priority || (g.priority == rule.priority && g.weight < bits);
    });
    group = groups_.insert(group, Group{rule.priority, bits, rule.mask, {}});
  }
  group->rules[rule.value & rule.mask].push_back(&rule);
  ++count_;
}

void SteeringTable::remove(SteeringRule& rule) {
  if (rule.kind != RuleKind::kMatch) {
    count_ -= std::erase(defaults_, &rule);
    return;
  }
  const auto group = std::find_if(groups_.begin(), groups_.end(), [&](const Group& g) {
    return g.priority == rule.priority && g.mask == rule.mask;
  });
  if (group == groups_.end()) return;
  const auto found = group->rules.find(rule.value & rule.mask);
  if (found == group->rules.end()) return;
  count_ -= std::erase(found->second, &rule);
  if (found->second.empty()) group->rules.erase(found);
  if (group->rules.empty()) groups_.erase(group);
}

namespace {

constexpr size_t kMaxInput = 2 * 16 + 2 * 2;
static_assert(kMaxInput + sizeof(uint32_t) <= kHashKeyBytes);

}  // namespace

uint32_t toeplitz(const std::array<uint8_t, kHashKeyBytes>& key, ConstBytes input) {
  uint32_t hash = 0;
  auto window = load_be<uint32_t>(key.data());
  for (size_t i = 0; i < input.size() && i < kMaxInput; ++i) {
    const auto byte = static_cast<uint8_t>(input[i]);
    for (int bit = 7; bit >= 0; --bit) {
      if ((byte >> bit & 1) != 0) hash ^= window;
      window = window << 1 | (key[i + sizeof window] >> bit & 1u);
    }
  }
  return hash;
}

uint32_t receive_hash(const std::array<uint8_t, kHashKeyBytes>& key, uint8_t fields, const FlowKey& frame) {
  std::array<std::byte, kMaxInput> input;
  size_t bytes = 0;
  const auto take = [&](const void* field, size_t size, Layer layer, uint8_t flag) {
    if (!frame.has(layer) || (fields & flag) == 0) return;
    std::memcpy(input.data() + bytes, field, size);
    bytes += size;
  };
  take(frame.source_ip.data(), 4, kIpv4, kHashSourceIpv4);
  take(frame.destination_ip.data(), 4, kIpv4, kHashDestinationIpv4);
  take(frame.source_ip.data(), 16, kIpv6, kHashSourceIpv6);
  take(frame.destination_ip.data(), 16, kIpv6, kHashDestinationIpv6);
  take(&frame.source_port, 2, kTcp, kHashSourceTcp);
  take(&frame.destination_port, 2, kTcp, kHashDestinationTcp);
  take(&frame.source_port, 2, kUdp, kHashSourceUdp);
  take(&frame.destination_port, 2, kUdp, kHashDestinationUdp);
  return toeplitz(key, {input.data(), bytes});
}

}  // namespace verbena::ethernet
