// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include "libraries/rsockets/address.h"

namespace verbena::rsockets {
namespace {

using ByteList = std::vector<uint8_t>;

ByteList list(std::span<const std::byte> bytes) {
  ByteList result;
  for (const std::byte b : bytes) result.push_back(std::to_integer<uint8_t>(b));
  return result;
}

Address ipv4() {
  return Address::ipv4(htonl(0x0a000001), htons(7174));
}

Address ipv6() {
  in6_addr address;
  inet_pton(AF_INET6, "fd00::1", &address);
  return Address::ipv6(address, htons(7174), htonl(0x12345));
}

template <class Header>
std::vector<std::byte> encoded(const Header& header) {
  std::vector<std::byte> bytes(header.size());
  EXPECT_EQ(header.encode(bytes.data()), bytes.size());
  return bytes;
}

TEST(DatagramHeader, IsEightBytesForIpv4) {
  EXPECT_EQ(list(encoded(DatagramHeader{ipv4()})), (ByteList{4, 8, 0x1c, 0x06, 10, 0, 0, 1}));
}

TEST(DatagramHeader, IsTwentyFourBytesForIpv6) {
  EXPECT_EQ(
      list(encoded(DatagramHeader{ipv6()})),
      (ByteList{6, 24, 0x1c, 0x06, 0, 1, 0x23, 0x45, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}));
}

TEST(DatagramHeader, DecodesWhatItEncodes) {
  for (const Address& source : {ipv4(), ipv6()}) {
    const auto header = DatagramHeader::decode(encoded(DatagramHeader{source}));
    ASSERT_TRUE(header);
    EXPECT_EQ(header->source, source);
  }
}

TEST(DatagramHeader, RefusesEveryTruncation) {
  for (const Address& source : {ipv4(), ipv6()}) {
    const auto bytes = encoded(DatagramHeader{source});
    for (size_t size = 0; size < bytes.size(); ++size) {
      EXPECT_FALSE(DatagramHeader::decode(ConstBytes(bytes).first(size))) << size;
    }
  }
}

TEST(DatagramHeader, RefusesLengthThatIsNotItsVersions) {
  auto bytes = encoded(DatagramHeader{ipv6()});
  bytes[1] = std::byte{8};
  EXPECT_FALSE(DatagramHeader::decode(bytes));
  bytes[1] = std::byte{24};
  bytes[0] = std::byte{4};
  EXPECT_FALSE(DatagramHeader::decode(bytes));
}

TEST(UdpHeader, CarriesTagKindAndQueuePair) {
  EXPECT_EQ(list(encoded(UdpHeader{UdpHeader::Kind::kControl, 0x123456, ipv4()})),
            (ByteList{0x55, 0x55, 0x55, 0x55, 4, 7, 16, 0, 0, 0x12, 0x34, 0x56, 10, 0, 0, 1}));
  EXPECT_EQ(encoded(UdpHeader{UdpHeader::Kind::kData, 1, ipv6()}).size(), 28u);
}

TEST(UdpHeader, DecodesWhatItEncodes) {
  for (const Address& source : {ipv4(), ipv6()}) {
    const auto bytes = encoded(UdpHeader{UdpHeader::Kind::kData, 0xabcdef, source});
    const auto header = UdpHeader::decode(bytes, source.family());
    ASSERT_TRUE(header);
    EXPECT_EQ(header->qpn, 0xabcdefu);
    EXPECT_EQ(header->kind, UdpHeader::Kind::kData);
  }
}

TEST(UdpHeader, RefusesForeignDatagrams) {
  const auto good = encoded(UdpHeader{UdpHeader::Kind::kData, 1, ipv4()});
  for (const size_t at : {0, 4, 5, 6}) {  // tag, version, kind, length
    auto bytes = good;
    bytes[at] = std::byte{0x99};
    EXPECT_FALSE(UdpHeader::decode(bytes, AF_INET)) << at;
  }
  EXPECT_FALSE(UdpHeader::decode(ConstBytes(good).first(15), AF_INET));
  EXPECT_FALSE(UdpHeader::decode(good, AF_INET6));
}

}  // namespace
}  // namespace verbena::rsockets
