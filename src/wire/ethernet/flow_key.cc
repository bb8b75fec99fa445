// SPDX-License-Identifier: Apache-2.0
#include "wire/ethernet/flow_key.h"

#include <bit>
#include <type_traits>

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
    switch (load_be<uint16_t>(data + type_at)) {
      case kTypeIpv4:
        ipv4();
        break;
      case kTypeIpv6:
        ipv6();
        break;
      default:
        break;
    }
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

}  // namespace verbena::ethernet
