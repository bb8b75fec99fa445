// SPDX-License-Identifier: Apache-2.0
#include "commands/rdma_core/connections/endpoints/endpoint.h"

#include <vector>

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include "commands/rdma_core/connections/cm.h"

namespace verbena::rdma_core {
namespace {

TEST(SharedQueueNumber, IsTheBeginningOfThePrivateData) {
  EXPECT_EQ(shared_queue_number(std::vector<uint8_t>{0, 1, 2, 3}), 0x010203U);
  EXPECT_EQ(shared_queue_number(std::vector<uint8_t>{0, 0, 0, 9, 255, 255}), 9U);
}

TEST(SharedQueueNumber, IsNoneOfAServerThatSaysLess) {
  EXPECT_FALSE(shared_queue_number({}));
  EXPECT_FALSE(shared_queue_number(std::vector<uint8_t>{1, 2, 3}));
}

TEST(ShownAddress, HasItsPort) {
  sockaddr_in v4 = {};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(7471);
  inet_pton(AF_INET, "192.0.2.1", &v4.sin_addr);
  EXPECT_EQ(shown(reinterpret_cast<sockaddr*>(&v4)), "192.0.2.1:7471");
  sockaddr_in6 v6 = {};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(1);
  inet_pton(AF_INET6, "fd09::1", &v6.sin6_addr);
  EXPECT_EQ(shown(reinterpret_cast<sockaddr*>(&v6)), "[fd09::1]:1");
  EXPECT_EQ(shown(nullptr), "");
}

TEST(FindHost, SaysThatANameIsNone) {
  sockaddr_storage address = {};
  EXPECT_NE(find_host("256.1.1.1.", address), 0);
  EXPECT_NE(find_host("", address), 0);
  EXPECT_EQ(find_host("127.0.0.1", address), 0);
  EXPECT_EQ(address.ss_family, AF_INET);
  EXPECT_EQ(find_host("::1", address), 0);
  EXPECT_EQ(address.ss_family, AF_INET6);
}

TEST(AddressFormat, IsTakenInAnyCase) {
  rdma_addrinfo hints = {};
  take_format("IP", hints);
  EXPECT_EQ(hints.ai_flags, RAI_NUMERICHOST);
  take_format("gid", hints);
  EXPECT_EQ(hints.ai_flags, RAI_NUMERICHOST | RAI_FAMILY);
  hints = {};
  take_format("name", hints);
  EXPECT_EQ(hints.ai_flags, 0);
}

}  // namespace
}  // namespace verbena::rdma_core
