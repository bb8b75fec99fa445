// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "wire/ethernet/frames.h"
#include "wire/ethernet/steering.h"

namespace verbena::ethernet {
namespace {

using testing::Frame;
using testing::FrameBuilder;

FlowKey key_of(const Frame& frame) {
  return parse_headers(frame).value_or(FrameHeaders{}).key;
}

uint32_t all_layers(const Frame& frame) {
  return key_of(frame).layers;
}

TEST(FlowKey, HasTheFieldsOfUdpOverIpv4) {
  const Frame frame = testing::udp4();
  const auto headers = parse_headers(frame);
  ASSERT_TRUE(headers);
  const FlowKey& key = headers->key;
  EXPECT_EQ(key.layers, kIpv4 | kUdp);
  EXPECT_THAT(key.destination, ::testing::ElementsAre(2, 0, 0, 0, 0, 0xd));
  EXPECT_THAT(key.source, ::testing::ElementsAre(2, 0, 0, 0, 0, 5));
  EXPECT_EQ(key.ether_type, byteswap(kTypeIpv4));
  EXPECT_EQ(load_be<uint32_t>(key.source_ip.data()), 0x0a000005u);
  EXPECT_EQ(load_be<uint32_t>(key.destination_ip.data()), 0x0a00000du);
  EXPECT_EQ(key.protocol, 17);
  EXPECT_EQ(key.traffic_class, 0x2e);
  EXPECT_EQ(key.hop_limit, 64);
  EXPECT_EQ(key.source_port, byteswap(uint16_t{1000}));
  EXPECT_EQ(key.destination_port, byteswap(uint16_t{2000}));
  EXPECT_EQ(headers->network_offset, 14u);
  EXPECT_EQ(headers->transport_offset, 34u);
}

TEST(FlowKey, HasTheFieldsOfTcpOverIpv6) {
  const FlowKey key = key_of(testing::tcp6());
  EXPECT_EQ(key.layers, kIpv6 | kTcp);
  EXPECT_EQ(key.source_ip[15], 5);
  EXPECT_EQ(key.destination_ip[15], 0xd);
  EXPECT_EQ(key.flow_label, byteswap(uint32_t{0x54321}));
  EXPECT_EQ(key.traffic_class, 0x2e);
  EXPECT_EQ(key.hop_limit, 63);
  EXPECT_EQ(key.source_port, byteswap(uint16_t{1000}));
}

TEST(FlowKey, LooksBehindTwoTagsAndNamesTheFirst) {
  const Frame frame =
      FrameBuilder().addresses().vlan(0x6003, kTypeServiceVlan).vlan(7).ipv4(17, 8).udp(0).build();
  const FlowKey key = key_of(frame);
  EXPECT_EQ(key.layers, kVlan | kIpv4 | kUdp);
  EXPECT_EQ(key.vlan_tag, byteswap(uint16_t{0x6003}));
  EXPECT_EQ(key.ether_type, byteswap(kTypeIpv4));
}

TEST(FlowKey, LooksNoFurtherThanTwoTags) {
  const Frame frame = FrameBuilder().addresses().vlan(1).vlan(2).vlan(3).ipv4(17, 8).udp(0).build();
  EXPECT_EQ(all_layers(frame), kVlan);
  EXPECT_EQ(key_of(frame).ether_type, byteswap(kTypeVlan));
}

TEST(FlowKey, SkipsIpv4Options) {
  const auto headers = parse_headers(FrameBuilder().addresses().ipv4(6, 20, 0, 8).tcp(0).build());
  ASSERT_TRUE(headers);
  EXPECT_EQ(headers->key.layers, kIpv4 | kTcp);
  EXPECT_EQ(headers->transport_offset, 42u);
}

TEST(FlowKey, OnlyTheFirstFragmentHasPorts) {
  const FlowKey first = key_of(FrameBuilder().addresses().ipv4(17, 28, 0x2000).udp(20).build());
  EXPECT_EQ(first.layers, kIpv4 | kUdp);
  EXPECT_EQ(first.fragment, kMoreFragments);
  const FlowKey later = key_of(FrameBuilder().addresses().ipv4(17, 28, 0x4001).udp(20).build());
  EXPECT_EQ(later.layers, uint32_t{kIpv4});
  EXPECT_EQ(later.fragment, kDontFragment);
  EXPECT_EQ(later.source_port, 0);
}

TEST(FlowKey, ShorterThanAnEthernetHeaderIsNoFrame) {
  for (size_t bytes = 0; bytes < kHeaderBytes; ++bytes) EXPECT_FALSE(parse_headers(Frame(bytes)));
  EXPECT_TRUE(parse_headers(Frame(kHeaderBytes)));
}

struct Cut {
  const char* name;
  Frame frame;
  size_t bytes;  // the smallest number of bytes that contains all of the header
  Layer layer;
};

TEST(FlowKey, IncompleteHeaderCountsAsAbsent) {
  const Frame tagged = FrameBuilder().addresses().vlan(5).half(0x88b5).build();
  const Cut cuts[] = {
      {"vlan", tagged, 18, kVlan},
      {"ipv4", testing::udp4(), 34, kIpv4},
      {"ipv4 options", FrameBuilder().addresses().ipv4(17, 8, 0, 8).udp(0).build(), 42, kIpv4},
      {"udp", testing::udp4(), 38, kUdp},
      {"ipv6", testing::tcp6(), 54, kIpv6},
      {"tcp", testing::tcp6(), 58, kTcp}};
  for (const Cut& cut : cuts) {
    const Frame whole(cut.frame.begin(), cut.frame.begin() + static_cast<ptrdiff_t>(cut.bytes));
    const Frame shorter(whole.begin(), whole.end() - 1);
    EXPECT_TRUE(all_layers(whole) & cut.layer) << cut.name;
    EXPECT_FALSE(all_layers(shorter) & cut.layer) << cut.name;
  }
}

TEST(FlowKey, WrongVersionOrLengthIsNoIp) {
  Frame frame = testing::udp4();
  frame[14] = std::byte{0x65};
  EXPECT_EQ(all_layers(frame), 0u);
  frame[14] = std::byte{0x44};
  EXPECT_EQ(all_layers(frame), 0u);
  Frame other = testing::udp6();
  other[14] = std::byte{0x40};
  EXPECT_EQ(all_layers(other), 0u);
}

TEST(FlowKey, MaskingIsBitByBit) {
  FlowKey a, b;
  a.source_port = 0x0ff0;
  b.source_port = 0x3c3c;
  a.layers = kIpv4 | kUdp;
  b.layers = kUdp;
  EXPECT_EQ((a & b).source_port, 0x0c30);
  EXPECT_EQ((a & b).layers, uint32_t{kUdp});
  EXPECT_EQ(weight(a), 10u);
  EXPECT_NE(FlowKeyHash()(a), FlowKeyHash()(b));
}

}  // namespace
}  // namespace verbena::ethernet
