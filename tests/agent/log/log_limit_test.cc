// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/log/agent_log.h"

namespace verbena::agent {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr LogLimit::Sizes kSizes{.of_user = 3, .of_all = 7, .users = 4, .window = seconds(10)};
constexpr TimePoint kBegin{seconds(1000)};

class LogLimitTest : public testing::Test {
 protected:
  // Logs `lines` lines. Returns how many are admitted.
  int log(std::optional<uid_t> user, int lines, TimePoint now = kBegin) {
    int admitted = 0;
    for (int i = 0; i < lines; ++i) admitted += limit_.admits(user, now) ? 1 : 0;
    return admitted;
  }

  LogLimit limit_{kSizes};
};

TEST_F(LogLimitTest, EachUserHasItsOwn) {
  EXPECT_EQ(log(1000, 100), 3);
  EXPECT_EQ(log(1001, 2), 2);
  EXPECT_EQ(log(1001, 2), 1);
}

TEST_F(LogLimitTest, SaysHowManyWereLeftOutWhenTheWindowIsOver) {
  log(1000, 100);
  log(1001, 2);
  EXPECT_EQ(limit_.report_due(), kBegin + seconds(10));
  EXPECT_THAT(limit_.take_reports(kBegin + seconds(9)), IsEmpty());
  EXPECT_THAT(limit_.take_reports(kBegin + seconds(10)),
              ElementsAre("user 1000: 97 lines were left out, more than are logged in 10 seconds"));
  EXPECT_THAT(limit_.take_reports(kBegin + seconds(20)), IsEmpty());
  EXPECT_EQ(limit_.report_due(), kNever);
}

TEST_F(LogLimitTest, TheNextWindowHasRoomAgain) {
  log(1000, 100);
  const TimePoint next = kBegin + seconds(15);
  limit_.take_reports(next);
  EXPECT_EQ(log(1000, 100, next), 3);
  EXPECT_EQ(limit_.report_due(), next + seconds(10));
}

TEST_F(LogLimitTest, NothingIsDueWhereNothingWasLeftOut) {
  log(1000, 3);
  EXPECT_EQ(limit_.report_due(), kNever);
  EXPECT_THAT(limit_.take_reports(kBegin + seconds(10)), IsEmpty());
  EXPECT_EQ(log(1000, 3, kBegin + seconds(10)), 3);
}

TEST_F(LogLimitTest, UsersTogetherLeaveTheAgentItsLines) {
  EXPECT_EQ(log(1000, 9) + log(1001, 9) + log(1002, 9), 7);
  EXPECT_EQ(log(std::nullopt, 9), 7);
  EXPECT_THAT(limit_.take_reports(kBegin + seconds(10)),
              ElementsAre(HasSubstr("the agent itself: 2"), HasSubstr("user 1000: 6"),
                          HasSubstr("user 1001: 6"), HasSubstr("user 1002: 8")));
}

TEST_F(LogLimitTest, UsersWithoutNumberAreNotRemembered) {
  int admitted = 0;
  for (uid_t user = 1; user <= 1'000; ++user) admitted += log(user, 10);
  EXPECT_EQ(admitted, 7);
  const auto reports = limit_.take_reports(kBegin + seconds(10));
  EXPECT_THAT(reports, SizeIs(kSizes.users + 1));
  EXPECT_THAT(reports.back(), HasSubstr("further users: "));
}

}  // namespace
}  // namespace verbena::agent
