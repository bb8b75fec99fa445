// SPDX-License-Identifier: Apache-2.0
#include "base/quota.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "base/seed.h"

namespace verbena {
namespace {

constexpr uid_t kRoot = 0;
constexpr uid_t kOwn = 500;
constexpr Quota::Size kSize{.all = 1000, .reserve = 100};

// Takes one by one until the quota refuses. Returns how many `user` got.
size_t take_all(Quota& quota, uid_t user) {
  size_t taken = 0;
  for (; quota.allows(user); ++taken) quota.take(user);
  return taken;
}

TEST(Quota, OneUserGetsTwoThirdsOfWhatIsNotReserved) {
  Quota quota(kSize, kOwn);
  EXPECT_EQ(take_all(quota, 1000), 600u);
  EXPECT_EQ(quota.of(1000), 600u);
}

TEST(Quota, TheNextToComeFindsSome) {
  Quota quota(kSize, kOwn);
  size_t before = kSize.all;
  for (uid_t user = 1000; user < 1005; ++user) {
    const size_t taken = take_all(quota, user);
    EXPECT_GT(taken, 0u);
    EXPECT_LT(taken, before);
    before = taken;
  }
}

TEST(Quota, RootAndTheAgentsOwnUserHaveTheReserveAndAllElse) {
  Quota quota(kSize, kOwn);
  for (uid_t user = 1000; user < 2000; ++user) take_all(quota, user);
  EXPECT_GE(take_all(quota, kRoot), kSize.reserve);
  EXPECT_FALSE(quota.allows(kOwn));
  Quota unused(kSize, kOwn);
  EXPECT_EQ(take_all(unused, kOwn), kSize.all);
}

TEST(Quota, TheReserveIsThereHoweverMuchStrangersHave) {
  Quota quota({.all = 90, .reserve = 30}, kOwn);
  quota.take(1000, 200);
  EXPECT_TRUE(quota.allows(0, 30));
  EXPECT_FALSE(quota.allows(0, 31));
}

TEST(Quota, RootLeavesToStrangersWhatIsKeptForThem) {
  Quota quota({.all = 1000, .reserve = 100, .kept_for_strangers = 100}, kOwn);
  EXPECT_EQ(take_all(quota, kRoot), 900u);
  EXPECT_FALSE(quota.allows(kOwn));
  EXPECT_GE(take_all(quota, 1000), 60u);
}

TEST(Quota, WhatIsGivenBackMayBeTakenAgain) {
  Quota quota(kSize, kOwn);
  take_all(quota, 1000);
  EXPECT_FALSE(quota.allows(1000));
  quota.give_back(1000, 10);
  EXPECT_TRUE(quota.allows(1000, 10));
  EXPECT_FALSE(quota.allows(1000, 11));
  quota.give_back(1000, 590);
  EXPECT_EQ(quota.of(1000), 0u);
  EXPECT_EQ(take_all(quota, 2000), 600u);
}

TEST(Quota, CountsWhatThereIsAnyhow) {
  Quota quota(kSize, kOwn);
  quota.take(1000, 1500);
  EXPECT_FALSE(quota.allows(1000));
  EXPECT_FALSE(quota.allows(2000));
  EXPECT_TRUE(quota.allows(kRoot)) << "of the reserve";
  quota.give_back(1000, 1500);
  EXPECT_TRUE(quota.allows(2000));
}

TEST(Quota, NeverAllowsMoreThanThereIs) {
  Random random(test::seed());
  Quota quota(kSize, kOwn);
  size_t all = 0;
  for (int i = 0; i < 20000; ++i) {
    const uid_t user = random.one_in(8) ? kRoot : 1000 + static_cast<uid_t>(random.below(30));
    const size_t count = 1 + random.below(20);
    if (random.one_in(2) && quota.of(user) >= count) {
      quota.give_back(user, count);
      all -= count;
    } else if (quota.allows(user, count)) {
      quota.take(user, count);
      all += count;
    }
    ASSERT_LE(all, kSize.all);
    ASSERT_LE(all - quota.of(kRoot), kSize.all - kSize.reserve);
  }
}

}  // namespace
}  // namespace verbena
