// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <gtest/gtest.h>

#include "wire/ethernet/frames.h"
#include "wire/ethernet/steering.h"

namespace verbena::ethernet {
namespace {

// The key of Microsoft's RSS verification suite; its published results for this key are the expected values.
constexpr std::array<uint8_t, kHashKeyBytes> kKey = {
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3,
    0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3,
    0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa};

struct Known {
  const char* source;
  uint16_t source_port;
  const char* destination;
  uint16_t destination_port;
  uint32_t addresses;
  uint32_t with_ports;
};

FlowKey key_of(const Known& known, int family) {
  FlowKey key;
  key.layers = (family == AF_INET ? kIpv4 : kIpv6) | kTcp;
  EXPECT_EQ(::inet_pton(family, known.source, key.source_ip.data()), 1);
  EXPECT_EQ(::inet_pton(family, known.destination, key.destination_ip.data()), 1);
  key.source_port = htons(known.source_port);
  key.destination_port = htons(known.destination_port);
  return key;
}

TEST(ReceiveHash, GivesThePublishedResultsForIpv4) {
  constexpr Known kKnown[] = {
      {"66.9.149.187", 2794, "161.142.100.80", 1766, 0x323e8fc2, 0x51ccc178},
      {"199.92.111.2", 14230, "65.69.140.83", 4739, 0xd718262a, 0xc626b0ea},
      {"24.19.198.95", 12898, "12.22.207.184", 38024, 0xd2d0a5de, 0x5c2b394a},
      {"38.27.205.30", 48228, "209.142.163.6", 2217, 0x82989176, 0xafc7327f},
      {"153.39.163.191", 44251, "202.188.127.2", 1303, 0x5d1809c5, 0x10e828a2},
  };
  constexpr uint8_t kAddresses = kHashSourceIpv4 | kHashDestinationIpv4;
  for (const Known& known : kKnown) {
    const FlowKey key = key_of(known, AF_INET);
    EXPECT_EQ(receive_hash(kKey, kAddresses, key), known.addresses) << known.source;
    EXPECT_EQ(receive_hash(kKey, kAddresses | kHashSourceTcp | kHashDestinationTcp, key), known.with_ports);
  }
}

TEST(ReceiveHash, GivesThePublishedResultsForIpv6) {
  constexpr Known kKnown[] = {
      {"3ffe:2501:200:1fff::7", 2794, "3ffe:2501:200:3::1", 1766, 0x2cc18cd5, 0x40207d3d},
      {"3ffe:501:8::260:97ff:fe40:efab", 14230, "ff02::1", 4739, 0x0f0c461c, 0xdde51bbf},
      {"3ffe:1900:4545:3:200:f8ff:fe21:67cf", 44251, "fe80::200:f8ff:fe21:67cf", 38024, 0x4b61e985,
       0x02d1feef},
  };
  constexpr uint8_t kAddresses = kHashSourceIpv6 | kHashDestinationIpv6;
  for (const Known& known : kKnown) {
    const FlowKey key = key_of(known, AF_INET6);
    EXPECT_EQ(receive_hash(kKey, kAddresses, key), known.addresses) << known.source;
    EXPECT_EQ(receive_hash(kKey, kAddresses | kHashSourceTcp | kHashDestinationTcp, key), known.with_ports);
  }
}

TEST(ReceiveHash, LeavesOutFieldsThatTheFrameLacks) {
  const auto udp = parse_headers(testing::udp4())->key;
  constexpr uint8_t kAddresses = kHashSourceIpv4 | kHashDestinationIpv4;
  EXPECT_EQ(receive_hash(kKey, kAddresses | kHashSourceTcp, udp), receive_hash(kKey, kAddresses, udp));
  EXPECT_NE(receive_hash(kKey, kAddresses | kHashSourceUdp, udp), receive_hash(kKey, kAddresses, udp));
  EXPECT_EQ(receive_hash(kKey, kHashSourceIpv6 | kHashDestinationIpv6, udp), 0u);
}

}  // namespace
}  // namespace verbena::ethernet
