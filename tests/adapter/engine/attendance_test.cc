// SPDX-License-Identifier: Apache-2.0
#include "adapter/engine/attendance.h"

#include <gtest/gtest.h>

namespace verbena::engine {
namespace {

constexpr TimePoint kBegin{std::chrono::hours(1)};

TEST(Attendance, BeginsWithTheFirstVerb) {
  Attendance attendance;
  EXPECT_TRUE(attendance.is_over(kBegin));
  attendance.enters(kBegin);
  EXPECT_EQ(attendance.lasts(kBegin), Duration::zero());
}

TEST(Attendance, BeginsWithTheWaitBeforeTheFirstVerbToo) {
  Attendance attendance;
  attendance.waits(kBegin);
  EXPECT_FALSE(attendance.is_over(kBegin));
  attendance.enters(kBegin + kLongestAbsence / 2);
  EXPECT_EQ(attendance.lasts(kBegin + kLongestAbsence / 2), kLongestAbsence / 2);
}

TEST(Attendance, LastsWhileVerbsFollowEachOther) {
  Attendance attendance;
  TimePoint now = kBegin;
  for (int i = 0; i < 10; ++i, now += kLongestAbsence) {
    attendance.enters(now);
    attendance.leaves(now, 0, false);
  }
  attendance.enters(now);
  EXPECT_EQ(attendance.lasts(now), now - kBegin);
}

TEST(Attendance, IsOverWhenTheApplicationStaysAway) {
  Attendance attendance;
  attendance.enters(kBegin);
  attendance.leaves(kBegin, 0, false);
  const TimePoint late = kBegin + kLongestAbsence + Duration(1);
  EXPECT_TRUE(attendance.is_over(late));
  attendance.enters(late);
  EXPECT_EQ(attendance.lasts(late), Duration::zero());
}

TEST(Attendance, AllowsForTheWorkThatPacketsMake) {
  Attendance attendance;
  attendance.enters(kBegin);
  attendance.leaves(kBegin, 100, false);
  EXPECT_FALSE(attendance.is_over(kBegin + kLongestAbsence + 100 * kWorkPerPacket));
  attendance.is_given(kBegin, 1);
  EXPECT_FALSE(attendance.is_over(kBegin + kLongestAbsence + 101 * kWorkPerPacket));
}

TEST(Attendance, IsNearOnlyRightAfterAVerbAlsoWhereItYields) {
  Attendance attendance;
  EXPECT_LT(attendance.near_until(), kBegin);
  attendance.enters(kBegin);
  attendance.leaves(kBegin, 10, true);
  EXPECT_EQ(attendance.near_until(), kBegin + kLongestAbsence);
  attendance.ends();
  EXPECT_LT(attendance.near_until(), kBegin);
}

TEST(Attendance, EndsWithTheSleepOfTheApplication) {
  Attendance attendance;
  attendance.enters(kBegin);
  attendance.leaves(kBegin, 0, false);
  attendance.ends();
  EXPECT_TRUE(attendance.is_over(kBegin));
  const TimePoint later = kBegin + Duration(1);
  attendance.waits(later);
  attendance.enters(later);
  EXPECT_EQ(attendance.lasts(later), Duration::zero());
}

}  // namespace
}  // namespace verbena::engine
