// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/random.h"
#include "wire/ethernet/steering.h"

namespace verbena::ethernet::testing {

using Frame = std::vector<std::byte>;

// Builds frames, header by header.
class FrameBuilder {
 public:
  FrameBuilder& bytes(std::initializer_list<int> values) {
    for (const int value : values) frame_.push_back(static_cast<std::byte>(value));
    return *this;
  }
  FrameBuilder& half(uint32_t value) {
    return bytes({static_cast<int>(value >> 8 & 0xff), static_cast<int>(value & 0xff)});
  }
  FrameBuilder& word(uint32_t value) { return half(value >> 16).half(value & 0xffff); }

  // Destination 02:00:00:00:00:0d, source 02:00:00:00:00:05.
  FrameBuilder& addresses() { return bytes({2, 0, 0, 0, 0, 0xd, 2, 0, 0, 0, 0, 5}); }
  FrameBuilder& vlan(uint32_t tag, uint32_t type = kTypeVlan) { return half(type).half(tag); }
  // Adds an IPv4 header, 10.0.0.5 to 10.0.0.13, with `bytes_behind` bytes after it.
  FrameBuilder& ipv4(int protocol, uint32_t bytes_behind, uint32_t fragment = 0, uint32_t options = 0) {
    half(kTypeIpv4).bytes({static_cast<int>(0x45 + options / 4), 0x2e});
    half(20 + options + bytes_behind).half(0x1234).half(fragment).bytes({64, protocol}).half(0);
    bytes({10, 0, 0, 5, 10, 0, 0, 13});
    frame_.resize(frame_.size() + options, std::byte{1});
    return *this;
  }
  // Adds an IPv6 header, fd00::5 to fd00::d, traffic class 0x2e, flow label 0x54321.
  FrameBuilder& ipv6(int next_header, uint32_t bytes_behind) {
    half(kTypeIpv6).word(0x62e54321).half(bytes_behind).bytes({next_header, 63});
    bytes({0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5});
    return bytes({0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xd});
  }
  // Adds a UDP header, port 1000 to port 2000, and the payload.
  FrameBuilder& udp(uint32_t payload) {
    return half(1000).half(2000).half(8 + payload).half(0).fill(payload);
  }
  FrameBuilder& tcp(uint32_t payload, int flags = 0x18) {
    half(1000).half(2000).word(0x01020304).word(0).bytes({0x50, flags}).half(100).word(0);
    return fill(payload);
  }
  FrameBuilder& fill(uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) frame_.push_back(static_cast<std::byte>(i * 7 + 1));
    return *this;
  }

  Frame build() const { return frame_; }

 private:
  Frame frame_;
};

inline Frame udp4(uint32_t payload = 20) {
  return FrameBuilder().addresses().ipv4(17, 8 + payload).udp(payload).build();
}
inline Frame tcp4(uint32_t payload = 20) {
  return FrameBuilder().addresses().ipv4(6, 20 + payload).tcp(payload).build();
}
inline Frame udp6(uint32_t payload = 20) {
  return FrameBuilder().addresses().ipv6(17, 8 + payload).udp(payload).build();
}
inline Frame tcp6(uint32_t payload = 20) {
  return FrameBuilder().addresses().ipv6(6, 20 + payload).tcp(payload).build();
}

// Returns a random frame, sometimes truncated or with one bit changed.
inline Frame random_frame(Random& random) {
  FrameBuilder builder;
  builder.addresses();
  for (uint64_t tags = random.below(4); tags > 1; --tags)
    builder.vlan(static_cast<uint32_t>(random.below(4)), random.one_in(4) ? kTypeServiceVlan : kTypeVlan);
  const auto protocol = static_cast<int>(random.one_in(5) ? 1 : random.one_in(2) ? 6 : 17);
  const uint32_t transport = protocol == 6 ? 20 : 8;
  const auto payload = static_cast<uint32_t>(random.below(20));
  switch (random.below(4)) {
    case 0:
      builder.half(0x88b5);
      break;
    case 1:
      builder.ipv6(protocol, transport + payload);
      break;
    default:
      builder.ipv4(protocol, transport + payload,
                   random.one_in(3) ? static_cast<uint32_t>(random.next()) & 0xffff : 0,
                   static_cast<uint32_t>(random.below(3)) * 4);
      break;
  }
  protocol == 6 ? builder.tcp(payload) : builder.udp(payload);
  Frame frame = builder.build();
  if (random.one_in(3)) frame[random.below(frame.size())] ^= static_cast<std::byte>(1u << random.below(8));
  if (random.one_in(3)) frame.resize(random.below(frame.size() + 1));
  return frame;
}

// A random rule derived from `key`: some of the key's fields, some of them changed, for layers that the key
// may lack.
struct RandomRule {
  FlowKey value;
  FlowKey mask;
};
inline RandomRule random_rule(Random& random, const FlowKey& key) {
  RandomRule rule;
  const auto take = [&](auto FlowKey::*field) {
    if (!random.one_in(3)) return;
    rule.value.*field = key.*field;
    std::memset(static_cast<void*>(&(rule.mask.*field)), 0xff, sizeof(rule.mask.*field));
    if (random.one_in(4))
      reinterpret_cast<uint8_t*>(&(rule.mask.*field))[0] = static_cast<uint8_t>(random.next());
    if (random.one_in(6))
      reinterpret_cast<uint8_t*>(&(rule.value.*field))[0] ^= static_cast<uint8_t>(random.next());
  };
  const auto need = [&](Layer layer) {
    rule.value.layers |= layer;
    rule.mask.layers |= layer;
  };
  take(&FlowKey::destination);
  take(&FlowKey::source);
  take(&FlowKey::ether_type);
  take(&FlowKey::vlan_tag);
  if (rule.mask.vlan_tag != 0) need(kVlan);
  const bool ipv4 = key.has(kIpv4) ? !random.one_in(8) : random.one_in(8);
  const bool ipv6 = !ipv4 && (key.has(kIpv6) ? !random.one_in(8) : random.one_in(8));
  if ((ipv4 || ipv6) && !random.one_in(3)) {
    need(ipv4 ? kIpv4 : kIpv6);
    take(&FlowKey::source_ip);
    take(&FlowKey::destination_ip);
    if (ipv4) {
      std::memset(rule.value.source_ip.data() + 4, 0, 12);
      std::memset(rule.mask.source_ip.data() + 4, 0, 12);
      std::memset(rule.value.destination_ip.data() + 4, 0, 12);
      std::memset(rule.mask.destination_ip.data() + 4, 0, 12);
      take(&FlowKey::fragment);
      rule.mask.fragment &= kDontFragment | kMoreFragments;
    } else {
      take(&FlowKey::flow_label);
      rule.mask.flow_label &= byteswap(uint32_t{0xfffff});
    }
    take(&FlowKey::protocol);
    take(&FlowKey::traffic_class);
    take(&FlowKey::hop_limit);
  }
  if (random.one_in(2)) {
    need(random.one_in(2) ? kTcp : kUdp);
    take(&FlowKey::source_port);
    take(&FlowKey::destination_port);
  }
  rule.value = rule.value & rule.mask;
  return rule;
}

}  // namespace verbena::ethernet::testing
