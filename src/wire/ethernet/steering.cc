// SPDX-License-Identifier: Apache-2.0
#include "wire/ethernet/steering.h"

#include <algorithm>
#include <bit>

namespace verbena::ethernet {

namespace {

constexpr size_t kWords = sizeof(FlowKey) / sizeof(uint64_t);
using Words = std::array<uint64_t, kWords>;

bool is_vlan(uint16_t type) {
  return type == kTypeVlan || type == kTypeServiceVlan;
}

// Parses a frame's headers into a key.
struct Parser {
  const uint8_t* data;
  uint32_t length;
  FrameHeaders found;

  uint32_t left(uint32_t offset) const { return offset < length ? length - offset : 0; }

  void ethernet() {
    FlowKey& key = found.key;
    std::memcpy(key.destination.data(), data, 6);
    std::memcpy(key.source.data(), data + 6, 6);
    uint32_t type_at = 12;
    for (uint32_t tags = 0; tags < kMaxVlanTags && is_vlan(load_be<uint16_t>(data + type_at)); ++tags) {
      if (left(type_at + 2) < kVlanTagBytes) break;
      if (tags == 0) std::memcpy(&key.vlan_tag, data + type_at + 2, 2);
      key.layers |= kVlan;
      type_at += kVlanTagBytes;
    }
    std::memcpy(&key.ether_type, data + type_at, 2);
    found.network_offset = type_at + 2;
    const auto type = load_be<uint16_t>(data + type_at);
    if (type == kTypeIpv4) ipv4();
    if (type == kTypeIpv6) ipv6();
  }

  void ipv4() {
    const uint8_t* at = data + found.network_offset;
    if (left(found.network_offset) < kIpv4HeaderBytes || at[0] >> 4 != 4) return;
    const uint32_t header_bytes = (at[0] & 0xfu) * 4;
    if (header_bytes < kIpv4HeaderBytes || left(found.network_offset) < header_bytes) return;
    FlowKey& key = found.key;
    key.layers |= kIpv4;
    key.traffic_class = at[1];
    const auto fragment = load_be<uint16_t>(at + 6);
    if ((fragment & 0x4000) != 0) key.fragment |= kDontFragment;
    if ((fragment & 0x2000) != 0) key.fragment |= kMoreFragments;
    key.hop_limit = at[8];
    key.protocol = at[9];
    std::memcpy(key.source_ip.data(), at + 12, 4);
    std::memcpy(key.destination_ip.data(), at + 16, 4);
    found.transport_offset = found.network_offset + header_bytes;
    // Only a datagram's first fragment has the ports.
    if ((fragment & 0x1fff) == 0) transport();
  }

  void ipv6() {
    const uint8_t* at = data + found.network_offset;
    if (left(found.network_offset) < kIpv6HeaderBytes || at[0] >> 4 != 6) return;
    FlowKey& key = found.key;
    key.layers |= kIpv6;
    const auto first = load_be<uint32_t>(at);
    key.traffic_class = static_cast<uint8_t>(first >> 20);
    key.flow_label = byteswap(first & 0xfffff);
    key.protocol = at[6];
    key.hop_limit = at[7];
    std::memcpy(key.source_ip.data(), at + 8, 16);
    std::memcpy(key.destination_ip.data(), at + 24, 16);
    found.transport_offset = found.network_offset + kIpv6HeaderBytes;
    transport();
  }

  void transport() {
    FlowKey& key = found.key;
    if (key.protocol != kProtocolTcp && key.protocol != kProtocolUdp) return;
    if (left(found.transport_offset) < kPortBytes) return;
    key.layers |= key.protocol == kProtocolTcp ? kTcp : kUdp;
    std::memcpy(&key.source_port, data + found.transport_offset, 2);
    std::memcpy(&key.destination_port, data + found.transport_offset + 2, 2);
  }
};

constexpr size_t kMaxInput = 2 * 16 + 2 * 2;
static_assert(kMaxInput + sizeof(uint32_t) <= kHashKeyBytes);

}  // namespace

FlowKey operator&(const FlowKey& a, const FlowKey& b) {
  auto left = std::bit_cast<Words>(a);
  const auto right = std::bit_cast<Words>(b);
  for (size_t i = 0; i < kWords; ++i) left[i] &= right[i];
  return std::bit_cast<FlowKey>(left);
}

uint32_t weight(const FlowKey& mask) {
  uint32_t bits = 0;
  for (const uint64_t word : std::bit_cast<Words>(mask)) bits += static_cast<uint32_t>(std::popcount(word));
  return bits;
}

size_t FlowKeyHash::operator()(const FlowKey& key) const {
  uint64_t hash = 0;
  for (const uint64_t word : std::bit_cast<Words>(key)) {
    hash = (hash ^ word) * 0x9e3779b97f4a7c15;
    hash ^= hash >> 32;
  }
  return hash;
}

std::optional<FrameHeaders> parse_headers(ConstBytes frame) {
  if (frame.size() < kHeaderBytes) return std::nullopt;
  Parser parser{reinterpret_cast<const uint8_t*>(frame.data()), static_cast<uint32_t>(frame.size()), {}};
  parser.ethernet();
  return parser.found;
}

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
