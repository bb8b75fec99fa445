// SPDX-License-Identifier: Apache-2.0
#include "wire/roce/ip_header.h"

#include <array>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace verbena::roce {
namespace {

using testing::ElementsAreArray;

std::vector<int> numbers(std::span<const std::byte> bytes) {
  std::vector<int> all;
  for (const std::byte b : bytes) all.push_back(std::to_integer<int>(b));
  return all;
}

Path ipv4_path() {
  constexpr std::array<uint8_t, 4> kFrom{192, 168, 0, 1}, kTo{192, 168, 0, 199};
  Path path;
  path.source = Address::from_ipv4(kFrom.data());
  path.destination = Address::from_ipv4(kTo.data());
  path.hop_limit = 64;
  return path;
}

Path ipv6_path() {
  Path path;
  path.source.bytes = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  path.destination.bytes = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2};
  path.flow_label = 0xabcde;
  path.traffic_class = 0x12;
  path.hop_limit = 3;
  return path;
}

// A well-known example header, whose checksum is 0xb861.
TEST(IpHeader, OfIpv4HasARightChecksumAndMayNotBeFragmented) {
  std::array<std::byte, kIpv4HeaderBytes> header;
  header.fill(std::byte{0xee});
  write_ipv4_header(ipv4_path(), 0x73 - kIpv4HeaderBytes - kUdpHeaderBytes, header.data());
  EXPECT_THAT(numbers(header),
              ElementsAreArray({0x45, 0,   0, 0x73, 0,   0,   0x40, 0,  0x40, 17, 0xb8, 0x61,  //
                                192,  168, 0, 1,    192, 168, 0,    199}));
}

TEST(IpHeader, OfIpv6SaysTheFlowAndTheLengthAfterIt) {
  std::array<std::byte, kIpv6HeaderBytes> header;
  write_ipv6_header(ipv6_path(), 100, header.data());
  const std::vector<int> got = numbers(header);
  EXPECT_THAT(std::vector<int>(got.begin(), got.begin() + 8),
              ElementsAreArray({0x61, 0x2a, 0xbc, 0xde, 0, 108, 17, 3}));
  EXPECT_THAT(std::vector<int>(got.begin() + 8, got.begin() + 24),
              ElementsAreArray(ipv6_path().source.bytes));
  EXPECT_THAT(std::vector<int>(got.begin() + 24, got.end()), ElementsAreArray(ipv6_path().destination.bytes));
}

TEST(IpHeader, TheIcrcCoversThePathsAddressesAndThePorts) {
  const IcrcFlow four = icrc_flow(ipv4_path(), 49152, 4791);
  EXPECT_FALSE(four.ipv6);
  EXPECT_EQ(four.source, (std::array<uint8_t, 16>{192, 168, 0, 1}));
  EXPECT_EQ(four.destination, (std::array<uint8_t, 16>{192, 168, 0, 199}));
  EXPECT_EQ(four.source_port, 49152);
  EXPECT_EQ(four.destination_port, 4791);
  const IcrcFlow six = icrc_flow(ipv6_path(), 1, 2);
  EXPECT_TRUE(six.ipv6);
  EXPECT_EQ(six.source, ipv6_path().source.bytes);
  EXPECT_EQ(six.destination, ipv6_path().destination.bytes);
}

}  // namespace
}  // namespace verbena::roce
