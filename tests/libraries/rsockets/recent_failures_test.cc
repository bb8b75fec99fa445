// SPDX-License-Identifier: Apache-2.0
#include "libraries/rsockets/recent_failures.h"

#include <gtest/gtest.h>

namespace verbena::rsockets {
namespace {

constexpr TimePoint kStart{};

Address address_of(size_t number) {
  return Address::ipv4(htonl(INADDR_LOOPBACK + static_cast<in_addr_t>(number)), 7);
}

TEST(RecentFailures, AreRememberedForASecond) {
  RecentFailures failures;
  failures.add(address_of(1), kStart);
  EXPECT_TRUE(failures.contains(address_of(1), kStart + RecentFailures::kTime - Duration(1)));
  EXPECT_FALSE(failures.contains(address_of(1), kStart + RecentFailures::kTime));
  EXPECT_FALSE(failures.contains(address_of(2), kStart));
}

TEST(RecentFailures, OldestGivesWay) {
  RecentFailures failures;
  for (size_t i = 0; i <= RecentFailures::kMax; ++i) failures.add(address_of(i), kStart);
  EXPECT_FALSE(failures.contains(address_of(0), kStart));
  EXPECT_TRUE(failures.contains(address_of(1), kStart));
  EXPECT_TRUE(failures.contains(address_of(RecentFailures::kMax), kStart));
}

TEST(RecentFailures, OneAddressTakesOnePlace) {
  RecentFailures failures;
  failures.add(address_of(0), kStart);
  for (size_t i = 0; i <= RecentFailures::kMax; ++i) failures.add(address_of(1), kStart);
  EXPECT_TRUE(failures.contains(address_of(0), kStart));
}

}  // namespace
}  // namespace verbena::rsockets
