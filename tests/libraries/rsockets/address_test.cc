// SPDX-License-Identifier: Apache-2.0
#include "libraries/rsockets/address.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>

namespace verbena::rsockets {
namespace {

TEST(RsocketAddress, RefusesWhatIsTooShortOrOfAnotherFamily) {
  sockaddr_in6 raw{};
  raw.sin6_family = AF_INET6;
  auto* generic = reinterpret_cast<const sockaddr*>(&raw);
  EXPECT_EQ(Address::from(generic, sizeof(sockaddr_in)).error().code, EINVAL);
  EXPECT_EQ(Address::from(generic, 0).error().code, EINVAL);
  EXPECT_EQ(Address::from(nullptr, sizeof raw).error().code, EINVAL);
  EXPECT_TRUE(Address::from(generic, sizeof raw));
  raw.sin6_family = AF_UNIX;
  EXPECT_EQ(Address::from(generic, sizeof raw).error().code, EAFNOSUPPORT);
}

TEST(RsocketAddress, ComparesByAddressAndPort) {
  const Address a = Address::ipv4(htonl(0x7f000001), htons(1));
  EXPECT_EQ(a, Address::ipv4(htonl(0x7f000001), htons(1)));
  EXPECT_NE(a, Address::ipv4(htonl(0x7f000002), htons(1)));
  EXPECT_NE(a, Address::ipv4(htonl(0x7f000001), htons(2)));
  EXPECT_NE(a, Address::ipv6(in6addr_loopback, htons(1)));
  EXPECT_EQ(Address::ipv6(in6addr_loopback, htons(1), 7), Address::ipv6(in6addr_loopback, htons(1), 8));
}

TEST(RsocketAddress, IsCutToTheRoomThereIsAndTellsItsLength) {
  const Address a = Address::ipv4(htonl(0x7f000001), htons(1));
  sockaddr_in small{};
  socklen_t length = 4;
  a.copy_to(reinterpret_cast<sockaddr*>(&small), &length);
  EXPECT_EQ(length, sizeof(sockaddr_in));
  EXPECT_EQ(small.sin_port, htons(1));
  EXPECT_EQ(small.sin_addr.s_addr, 0u) << "beyond the room given";
  length = 0;
  a.copy_to(nullptr, &length);
  EXPECT_EQ(length, sizeof(sockaddr_in));
}

TEST(RsocketAddress, KnowsTheWildcard) {
  EXPECT_TRUE(Address::any(AF_INET).is_wildcard());
  EXPECT_TRUE(Address::any(AF_INET6).is_wildcard());
  EXPECT_FALSE(Address::ipv6(in6addr_loopback, 0).is_wildcard());
}

}  // namespace
}  // namespace verbena::rsockets
