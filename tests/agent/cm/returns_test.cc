// SPDX-License-Identifier: Apache-2.0
// How long the clients of a former agent are waited for.
#include <chrono>

#include <gtest/gtest.h>

#include "agent/cm/in_process.h"

namespace verbena::agent {
namespace {

using std::chrono::seconds;
using CmReturns = CmInProcess;

TEST_F(CmReturns, AreProlongedByOneThatComesBack) {
  const TimePoint now = MonotonicClock::now();
  service_.expect_returns(now + seconds(3));
  service_.expect_one_return(now + seconds(4));
  EXPECT_EQ(service_.returns_until(), now + seconds(4));
  service_.expect_one_return(now + seconds(1));
  EXPECT_EQ(service_.returns_until(), now + seconds(4));
}

// A user's processes may come back one by one, for as long as that user likes.
TEST_F(CmReturns, AreProlongedForAFewSecondsAtMost) {
  const TimePoint now = MonotonicClock::now();
  service_.expect_returns(now + seconds(3));
  for (int second = 1; second <= 1000; ++second) service_.expect_one_return(now + seconds(second));
  EXPECT_LE(service_.returns_until(), now + seconds(10));
}

TEST_F(CmReturns, AreNotExpectedWithoutAFormerAgent) {
  service_.expect_one_return(MonotonicClock::now() + seconds(1000));
  EXPECT_FALSE(service_.expects_returns());
}

}  // namespace
}  // namespace verbena::agent
