// SPDX-License-Identifier: Apache-2.0
#include "commands/perf/raw_frame.h"

#include <string>
#include <vector>

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include "commands/perf/raw_flow.h"

namespace verbena::perf {
namespace {

constexpr MacAddress kServerMac{0x02, 0, 0, 0, 0, 0x01};
constexpr MacAddress kClientMac{0x02, 0, 0, 0, 0, 0x02};

using Octets = std::vector<int>;

// Writes the headers into a frame of zeros, and returns its first bytes.
Octets first_bytes(const FrameFields& fields, std::size_t frame_bytes, std::size_t count) {
  std::vector<std::byte> frame(frame_bytes);
  write_headers(frame, fields);
  Octets octets;
  for (std::size_t i = 0; i < count; ++i) octets.push_back(std::to_integer<int>(frame[i]));
  return octets;
}

FrameFields ethernet() {
  return {.source = kClientMac, .destination = kServerMac};
}

FrameFields ipv4() {
  FrameFields fields = ethernet();
  fields.ip = IpFields{.source = *read_ip("10.9.0.2", false), .destination = *read_ip("10.9.0.1", false)};
  return fields;
}

FrameFields ipv6() {
  FrameFields fields = ethernet();
  fields.ip = IpFields{.source = *read_ip("fd00::2", true), .destination = *read_ip("fd00::1", true)};
  return fields;
}

TEST(RawFrame, HasItsLengthInPlaceOfAnEtherType) {
  EXPECT_EQ(first_bytes(ethernet(), 60, 14),
            (Octets{0x02, 0, 0, 0, 0, 0x01, 0x02, 0, 0, 0, 0, 0x02, 0x00, 0x2e}));
  EXPECT_EQ(header_bytes(ethernet()), 14U);
}

TEST(RawFrame, HasTheEtherTypeThatIsGiven) {
  FrameFields fields = ethernet();
  fields.ether_type = 0x88b5;
  EXPECT_EQ(first_bytes(fields, 60, 14),
            (Octets{0x02, 0, 0, 0, 0, 0x01, 0x02, 0, 0, 0, 0, 0x02, 0x88, 0xb5}));
}

TEST(RawFrame, HasAVlanTagBeforeTheType) {
  FrameFields fields = ethernet();
  fields.vlan_priority = 5;
  EXPECT_EQ(first_bytes(fields, 60, 18),
            (Octets{0x02, 0, 0, 0, 0, 0x01, 0x02, 0, 0, 0, 0, 0x02, 0x81, 0x00, 0xa0, 0x01, 0x00, 0x2a}));
  EXPECT_EQ(header_bytes(fields), 18U);
}

// The checksum is what perftest 4.5 and RFC 1071 calculate for the same header.
TEST(RawFrame, HasAnIpv4HeaderWithItsChecksum) {
  FrameFields fields = ipv4();
  fields.ports = PortFields{.source = 4001, .destination = 4000};
  EXPECT_EQ(first_bytes(fields, 60, 42),
            (Octets{0x02, 0,    0,    0,    0,    0x01, 0x02, 0,    0,    0,    0,    0x02, 0x08, 0x00,  //
                    0x45, 0x00, 0x00, 0x2e, 0x00, 0x00, 0x00, 0x00, 0x40, 0x11, 0x66, 0xab,              //
                    10,   9,    0,    2,    10,   9,    0,    1,                                         //
                    0x0f, 0xa1, 0x0f, 0xa0, 0x00, 0x1a, 0xcc, 0x64}));
  EXPECT_EQ(header_bytes(fields), 42U);
}

TEST(RawFrame, HasTypeOfServiceAndTimeToLiveThatAreGiven) {
  FrameFields fields = ipv4();
  fields.ip->traffic_class = 0xb8;
  fields.ip->hop_limit = 7;
  EXPECT_EQ(first_bytes(fields, 64, 26),
            (Octets{0x02, 0,    0,    0,    0,    0x01, 0x02, 0,    0,    0,    0,    0x02, 0x08,
                    0x00, 0x45, 0xb8, 0x00, 0x32, 0x00, 0x00, 0x00, 0x00, 0x07, 0x00, 0x9f, 0x00}));
}

TEST(RawFrame, KeepsChecksumsUnderAnotherEtherType) {
  FrameFields fields = ipv4();
  fields.ports = PortFields{.source = 4001, .destination = 4000};
  Octets expected = first_bytes(fields, 60, 60);
  expected[12] = 0x88;
  expected[13] = 0xb5;
  fields.ether_type = 0x88b5;
  EXPECT_EQ(first_bytes(fields, 60, 60), expected);
}

TEST(RawFrame, HasAnIpv6HeaderAndTheChecksumThatUdpNeedsThere) {
  FrameFields fields = ipv6();
  fields.ip->traffic_class = 0x2e;
  fields.ip->flow_label = 0x12345;
  fields.ports = PortFields{.source = 4001, .destination = 4000};
  EXPECT_EQ(first_bytes(fields, 70, 62),
            (Octets{0x02, 0,    0,    0,    0,    0x01, 0x02, 0,    0, 0, 0, 0x02, 0x86, 0xdd,        //
                    0x62, 0xe1, 0x23, 0x45, 0x00, 0x10, 0x11, 0x40,                                   //
                    0xfd, 0,    0,    0,    0,    0,    0,    0,    0, 0, 0, 0,    0,    0,    0, 2,  //
                    0xfd, 0,    0,    0,    0,    0,    0,    0,    0, 0, 0, 0,    0,    0,    0, 1,  //
                    0x0f, 0xa1, 0x0f, 0xa0, 0x00, 0x10, 0xe6, 0x88}));
  EXPECT_EQ(header_bytes(fields), 62U);
}

TEST(RawFrame, SaysThatNothingFollowsAnIpv6HeaderWithoutPorts) {
  EXPECT_EQ(first_bytes(ipv6(), 60, 22)[20], 59);
}

TEST(RawFrame, HasATcpHeaderInsteadOfUdp) {
  FrameFields fields = ipv4();
  fields.ports = PortFields{.source = 4001, .destination = 4000, .is_tcp = true};
  const Octets octets = first_bytes(fields, 60, 54);
  EXPECT_EQ(octets[23], 6);
  EXPECT_EQ(
      Octets(octets.begin() + 34, octets.end()),
      (Octets{0x0f, 0xa1, 0x0f, 0xa0, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x00, 0x20, 0x00, 0x5c, 0x89, 0, 0}));
  EXPECT_EQ(header_bytes(fields), 54U);
}

TEST(RawFrame, IsAnsweredWithSwappedAddressesAndPorts) {
  FrameFields fields = ipv4();
  fields.ports = PortFields{.source = 4001, .destination = 4000};
  const FrameFields answer = reversed(fields);
  EXPECT_EQ(answer.source, kServerMac);
  EXPECT_EQ(answer.destination, kClientMac);
  EXPECT_EQ(text_of(answer.ip->source), "10.9.0.1");
  EXPECT_EQ(text_of(answer.ip->destination), "10.9.0.2");
  EXPECT_EQ(answer.ports->source, 4000);
  EXPECT_EQ(answer.ports->destination, 4001);
}

TEST(RawFrame, ReadsAddressesAndRefusesOtherWords) {
  EXPECT_EQ(read_mac("02:0a:FF:00:00:01"), (MacAddress{0x02, 0x0a, 0xff, 0, 0, 1}));
  EXPECT_EQ(text_of(MacAddress{0x02, 0x0a, 0xff, 0, 0, 1}), "02:0A:FF:00:00:01");
  for (const char* word :
       {"", "02:0a:ff:00:00", "02:0a:ff:00:00:01:02", "02:0a:ff:00:00:0x", "02-0a-ff-00-00-01"})
    EXPECT_FALSE(read_mac(word)) << word;
  EXPECT_FALSE(read_ip("10.9.0", false));
  EXPECT_FALSE(read_ip("10.9.0.1", true));
  EXPECT_FALSE(read_ip("fd00::1", false));
}

TEST(FlowRule, MatchesDestinationAddressesAndPorts) {
  FrameFields fields = ipv4();
  fields.ports = PortFields{.source = 4001, .destination = 4000};
  const FlowRule rule(fields, 1);
  EXPECT_EQ(rule.get().type, IBV_FLOW_ATTR_NORMAL);
  EXPECT_EQ(rule.get().num_of_specs, 3);
  EXPECT_EQ(rule.get().port, 1);
  const auto* const ethernet_part = reinterpret_cast<const ibv_flow_spec_eth*>(&rule.get() + 1);
  EXPECT_EQ(ethernet_part->type, IBV_FLOW_SPEC_ETH);
  EXPECT_EQ(ethernet_part->val.dst_mac[5], 1);
  EXPECT_EQ(ethernet_part->mask.dst_mac[5], 0xff);
  EXPECT_EQ(ethernet_part->mask.src_mac[5], 0);
  EXPECT_EQ(ethernet_part->mask.ether_type, 0);
  const auto* const ip_part = reinterpret_cast<const ibv_flow_spec_ipv4_ext*>(ethernet_part + 1);
  EXPECT_EQ(ip_part->type, IBV_FLOW_SPEC_IPV4_EXT);
  EXPECT_EQ(ip_part->val.dst_ip, htonl(0x0a090001));
  EXPECT_EQ(ip_part->mask.src_ip, 0xffffffffU);
  EXPECT_EQ(ip_part->mask.tos, 0) << "no type of service is given";
  const auto* const port_part = reinterpret_cast<const ibv_flow_spec_tcp_udp*>(ip_part + 1);
  EXPECT_EQ(port_part->type, IBV_FLOW_SPEC_UDP);
  EXPECT_EQ(port_part->val.dst_port, htons(4000));
  EXPECT_EQ(rule.get().size,
            reinterpret_cast<const char*>(port_part + 1) - reinterpret_cast<const char*>(&rule.get()));
}

TEST(FlowRule, MatchesOnlyTheEtherTypeIfOneIsGiven) {
  FrameFields fields = ipv4();
  fields.ether_type = 0x88b5;
  const FlowRule rule(fields, 1);
  EXPECT_EQ(rule.get().num_of_specs, 1);
  const auto* const ethernet_part = reinterpret_cast<const ibv_flow_spec_eth*>(&rule.get() + 1);
  EXPECT_EQ(ethernet_part->val.ether_type, htons(0x88b5));
  EXPECT_EQ(ethernet_part->mask.ether_type, 0xffff);
}

TEST(FlowRule, OfAllFramesHasNoFields) {
  const FlowRule rule(IBV_FLOW_ATTR_ALL_DEFAULT, 1);
  EXPECT_EQ(rule.get().type, IBV_FLOW_ATTR_ALL_DEFAULT);
  EXPECT_EQ(rule.get().num_of_specs, 0);
  EXPECT_EQ(rule.get().size, sizeof(ibv_flow_attr));
}

}  // namespace
}  // namespace verbena::perf
