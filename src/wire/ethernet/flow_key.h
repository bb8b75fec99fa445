// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <optional>

#include "base/bytes.h"

namespace verbena::ethernet {

inline constexpr uint32_t kHeaderBytes = 14;
inline constexpr uint32_t kVlanTagBytes = 4;
inline constexpr uint32_t kMaxVlanTags = 2;
// The minimum length of a frame on a wire, without the frame check sequence (IEEE 802.3, 4.2.3.3).
inline constexpr uint32_t kLeastFrameBytes = 60;

inline constexpr uint16_t kTypeIpv4 = 0x0800;
inline constexpr uint16_t kTypeIpv6 = 0x86dd;
inline constexpr uint16_t kTypeVlan = 0x8100;         // IEEE 802.1Q, customer tag
inline constexpr uint16_t kTypeServiceVlan = 0x88a8;  // IEEE 802.1ad

inline constexpr uint32_t kIpv4HeaderBytes = 20;
inline constexpr uint32_t kIpv6HeaderBytes = 40;
inline constexpr uint32_t kPortBytes = 4;
inline constexpr uint8_t kProtocolTcp = 6;
inline constexpr uint8_t kProtocolUdp = 17;

// The headers that a frame has, or that a flow rule matches.
enum Layer : uint32_t { kVlan = 1, kIpv4 = 2, kIpv6 = 4, kTcp = 8, kUdp = 16 };

// IPv4's fragmentation flags in the encoding of flow rules (the kernel's enum ib_ipv4_flags).
enum FragmentFlag : uint8_t { kDontFragment = 2, kMoreFragments = 4 };

// All header fields of a frame that a flow rule may match, in network byte order; absent fields are zero. A
// flow rule consists of a value and a mask of this type. The rule matches a frame if the frame's key & mask
// equals the value.
struct FlowKey {
  std::array<uint8_t, 6> destination{};
  std::array<uint8_t, 6> source{};
  uint16_t vlan_tag = 0;                // tag control information of the outermost VLAN tag
  uint16_t ether_type = 0;              // the EtherType that follows the last VLAN tag
  std::array<uint8_t, 16> source_ip{};  // an IPv4 address is the first four bytes
  std::array<uint8_t, 16> destination_ip{};
  uint32_t flow_label = 0;
  uint16_t source_port = 0;
  uint16_t destination_port = 0;
  uint8_t protocol = 0;
  uint8_t traffic_class = 0;
  uint8_t hop_limit = 0;
  uint8_t fragment = 0;  // FragmentFlag bits; IPv4 only
  uint32_t layers = 0;   // Layer

  bool is_multicast() const { return (destination[0] & 1) != 0; }
  bool has(Layer layer) const { return (layers & layer) != 0; }

  friend bool operator==(const FlowKey&, const FlowKey&) = default;
};
static_assert(sizeof(FlowKey) == 64 && std::has_unique_object_representations_v<FlowKey>);

FlowKey operator&(const FlowKey& a, const FlowKey& b);
// Returns the number of bits set in a mask: the more, the more specific is the rule.
uint32_t weight(const FlowKey& mask);

// Hashes keys for hash tables.
struct FlowKeyHash {
  size_t operator()(const FlowKey& key) const;
};

// The headers of an untrusted frame: an incomplete or inconsistent header counts as absent.
struct FrameHeaders {
  FlowKey key;
  uint32_t network_offset = 0;    // of the header that key.ether_type names, in bytes from the frame's start
  uint32_t transport_offset = 0;  // 0 unless the frame has an IP header
};

// Finds the headers of a frame. Returns nullopt if the frame is shorter than an Ethernet header.
std::optional<FrameHeaders> parse_headers(ConstBytes frame);

}  // namespace verbena::ethernet
