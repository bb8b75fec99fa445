// SPDX-License-Identifier: Apache-2.0
// Credits of connections, and the shares of a shared receive queue.
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include <gtest/gtest.h>
#include <verbena/cm/credits.hpp>
#include <verbena/cm/receive_shares.hpp>

namespace verbena::detail {
namespace {

constexpr std::uint32_t kUpdate = 1U << 16;

credits with(std::uint32_t number, std::uint32_t max) {
  credits made;
  made.meet(hello{number, 100, max});
  made.begin(number);
  return made;
}

TEST(Credits, KeepTheLastForAnUpdate) {
  credits own = with(2, 2);
  EXPECT_TRUE(own.may_send(false));
  EXPECT_EQ(own.spend(false), 0U);
  EXPECT_FALSE(own.may_send(false));
  EXPECT_TRUE(own.may_send(true));
  EXPECT_EQ(own.spend(true), kUpdate);
  EXPECT_FALSE(own.may_send(true));
}

TEST(Credits, TravelInTheNextMessage) {
  credits near = with(10, 10);
  credits far = with(10, 10);
  near.add_freed(3);
  far.spend(false);
  far.spend(false);
  far.spend(false);
  EXPECT_TRUE(far.take_in(near.spend(false)));
  EXPECT_EQ(near.spend(false), 0U);  // told once
  for (int i = 0; i < 9; ++i) {
    EXPECT_TRUE(far.may_send(false));
    far.spend(false);
  }
  EXPECT_FALSE(far.may_send(false));
}

TEST(Credits, RefusesMoreThanTheMaximum) {
  credits own = with(4, 6);
  EXPECT_TRUE(own.take_in(2));
  EXPECT_FALSE(own.take_in(1));
  EXPECT_FALSE(own.take_in(0xffff));
}

// A peer that ignores its credits could take the shared receives of others.
TEST(Credits, RefusesMessagesWithoutACredit) {
  credits own = with(2, 4);
  EXPECT_TRUE(own.take_in(0));
  EXPECT_TRUE(own.take_in(kUpdate));
  EXPECT_FALSE(own.take_in(0));
  own.add_freed(1);
  EXPECT_EQ(own.spend(false), 1U);
  EXPECT_TRUE(own.take_in(0));
  EXPECT_FALSE(own.take_in(0));
}

TEST(Credits, ArePeersOwnConcernWithoutTheProtocol) {
  credits own;
  own.meet(hello::decoded({}));
  own.add_freed(100);
  EXPECT_FALSE(own.are_counted());
  EXPECT_FALSE(own.are_due(1));
  EXPECT_TRUE(own.may_send(false));
}

TEST(Credits, AreDueWhenHalfOfTheShareIsFree) {
  credits own = with(10, 10);
  own.add_freed(2);
  EXPECT_FALSE(own.are_due(5));
  own.add_freed(1);
  EXPECT_TRUE(own.are_due(5));
}

TEST(Credits, SurviveTheirEncoding) {
  const auto words = hello{1, 2, 3}.encoded();
  const auto read = hello::decoded(std::as_bytes(std::span(words)));
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->credits, 1U);
  EXPECT_EQ(read->message_size, 2U);
  EXPECT_EQ(read->max_credits, 3U);
  EXPECT_FALSE(hello::decoded(std::as_bytes(std::span(words)).first(15)).has_value());
}

// Updates answer updates only until both ends know enough.
TEST(Credits, ComeToRest) {
  for (std::uint32_t near_share = 2; near_share < 8; ++near_share) {
    for (std::uint32_t far_share = 3; far_share < 8; ++far_share) {
      credits near = with(far_share, far_share);
      credits far = with(near_share, near_share);
      ASSERT_TRUE(far.take_in(near.spend(false)));
      far.add_freed(1);
      int updates = 0;
      for (bool any = true; any && updates < 100;) {
        any = false;
        if (far.are_due(far_share)) {
          ASSERT_TRUE(near.take_in(far.spend(true)));
          near.add_freed(1);
          any = true, ++updates;
        }
        if (near.are_due(near_share)) {
          ASSERT_TRUE(far.take_in(near.spend(true)));
          far.add_freed(1);
          any = true, ++updates;
        }
      }
      EXPECT_LT(updates, 10) << near_share << " and " << far_share;
      EXPECT_TRUE(near.may_send(false));
    }
  }
}

TEST(ReceiveShares, AreEqual) {
  receive_shares all(10, 12);
  receive_shares::share first, second;
  ASSERT_TRUE(all.join(first, 100));
  EXPECT_EQ(first.size(), 14U);
  ASSERT_TRUE(all.join(second, 100));
  EXPECT_EQ(second.size(), 2U);  // the first one has all others
  for (int i = 0; i < 6; ++i) EXPECT_EQ(all.on_freed(first), 0U);
  EXPECT_EQ(all.on_freed(first), 1U);
  EXPECT_EQ(first.size(), 8U);
  EXPECT_EQ(all.on_freed(second), 7U);
  EXPECT_EQ(second.size(), 8U);
  EXPECT_EQ(all.on_freed(second), 1U);
}

TEST(ReceiveShares, AreNoLargerThanWanted) {
  receive_shares all(10, 100);
  receive_shares::share one, least;
  ASSERT_TRUE(all.join(one, 5));
  EXPECT_EQ(one.size(), 5U);
  ASSERT_TRUE(all.join(least, 1));
  EXPECT_EQ(least.size(), credits::kLeast);
}

TEST(ReceiveShares, AreRefusedWhenThereAreTooMany) {
  receive_shares all(2, 100);
  receive_shares::share first, second, third;
  EXPECT_TRUE(all.join(first, 10));
  EXPECT_TRUE(all.join(second, 10));
  EXPECT_FALSE(all.join(third, 10));
  all.leave(first);
  EXPECT_TRUE(all.join(third, 10));
  EXPECT_EQ(all.connections(), 2U);
}

// Joins, leaves and frees in any order: nobody has less than the least, and all have no more than there is.
TEST(ReceiveShares, NeverExceedTheQueue) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    receive_shares all(50, 60);
    std::vector<receive_shares::share> shares(60);
    for (int step = 0; step < 5000; ++step) {
      receive_shares::share& one = shares[random() % shares.size()];
      if (one.size() == 0) {
        const bool has_joined = all.join(one, 20);
        ASSERT_EQ(has_joined, one.size() != 0);
      } else if (random() % 4 == 0) {
        all.leave(one);
      } else {
        all.on_freed(one);
      }
      std::uint32_t sum = 0;
      for (const auto& each : shares) {
        sum += each.size();
        if (each.size() != 0) {
          ASSERT_GE(each.size(), credits::kLeast);
          ASSERT_LE(each.size(), 20U);
        }
      }
      ASSERT_EQ(sum, all.taken()) << "seed " << seed;
      ASSERT_LE(sum, all.capacity()) << "seed " << seed;
    }
    for (auto& each : shares) {
      if (each.size() != 0) all.leave(each);
    }
    EXPECT_EQ(all.taken(), 0U);
    EXPECT_EQ(all.connections(), 0U);
  }
}

}  // namespace
}  // namespace verbena::detail
