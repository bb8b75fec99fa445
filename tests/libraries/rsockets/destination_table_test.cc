// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "libraries/rsockets/datagram.h"

namespace verbena::rsockets {
namespace {

struct Place {
  bool stays = false;
};

Address number(uint32_t port) {
  return Address::ipv4(htonl(INADDR_LOOPBACK), htons(static_cast<uint16_t>(port)));
}

struct DestinationTableTest : ::testing::Test {
  Place* add(uint32_t port, bool stays = false) {
    return table.add(number(port), std::make_unique<Place>(Place{stays}),
                     [](const Place& place) { return !place.stays; });
  }
  bool has(uint32_t port) const { return table.find(number(port)) != nullptr; }

  DestinationTable<Place> table{3};
};

TEST_F(DestinationTableTest, FindsWhatWasAdded) {
  Place* const one = add(1);
  EXPECT_EQ(table.find(number(1)), one);
  EXPECT_FALSE(has(2));
}

TEST_F(DestinationTableTest, TheNextToComeFindsRoomHoweverManyThereWere) {
  for (uint32_t port = 1; port < 1000; ++port) {
    ASSERT_NE(add(port), nullptr);
    ASSERT_TRUE(has(port));
  }
}

TEST_F(DestinationTableTest, TheFirstMakesRoom) {
  for (const uint32_t port : {5, 3, 4, 9}) add(port);
  EXPECT_FALSE(has(5));
  EXPECT_TRUE(has(3) && has(4) && has(9));
  add(5);
  EXPECT_FALSE(has(3));
}

TEST_F(DestinationTableTest, WhatMustStayStays) {
  add(1, true);
  for (uint32_t port = 2; port < 100; ++port) ASSERT_NE(add(port), nullptr);
  EXPECT_TRUE(has(1));
}

TEST_F(DestinationTableTest, WhereAllMustStayThereIsNoRoom) {
  for (const uint32_t port : {1, 2, 3}) add(port, true);
  EXPECT_EQ(add(4), nullptr);
  EXPECT_TRUE(has(1) && has(2) && has(3));
}

}  // namespace
}  // namespace verbena::rsockets
