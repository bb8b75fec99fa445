// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "adapter/congestion/bbr.h"

namespace verbena::congestion {
namespace {

TEST(WindowedMax, ForgetsWhatIsOld) {
  WindowedMax most;
  most.add(1, 100);
  most.add(2, 50);
  EXPECT_EQ(most.get(), 100u);
  most.add(10, 60);
  EXPECT_EQ(most.get(), 100u);
  most.add(11, 10);
  EXPECT_EQ(most.get(), 60u);
  most.add(100, 5);
  EXPECT_EQ(most.get(), 5u);
}

TEST(WindowedMax, CountsWhatCameBeforeNoMoreThanItIsTold) {
  WindowedMax most;
  most.add(1, 100);
  most.add(2, 50);
  most.cut(70);
  EXPECT_EQ(most.get(), 70u);
  most.add(2, 80);
  EXPECT_EQ(most.get(), 80u);
}

}  // namespace
}  // namespace verbena::congestion
