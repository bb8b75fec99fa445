// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <infiniband/verbs.h>

namespace {

TEST(Rates, GoThereAndBack) {
  int known = 0;
  for (int value = 0; value < 32; ++value) {
    const auto rate = static_cast<ibv_rate>(value);
    const int mbps = ibv_rate_to_mbps(rate);
    if (mbps > 0) {
      ++known;
      EXPECT_EQ(mbps_to_ibv_rate(mbps), rate);
    }
    const int multiple = ibv_rate_to_mult(rate);
    if (multiple > 0) {
      EXPECT_EQ(mult_to_ibv_rate(multiple), rate);
    }
  }
  EXPECT_EQ(known, IBV_RATE_1200_GBPS - IBV_RATE_2_5_GBPS + 1);
}

TEST(Rates, HaveTheNumbersProgramsPrint) {
  EXPECT_EQ(ibv_rate_to_mult(IBV_RATE_2_5_GBPS), 1);
  EXPECT_EQ(ibv_rate_to_mult(IBV_RATE_120_GBPS), 48);
  EXPECT_EQ(ibv_rate_to_mult(IBV_RATE_28_GBPS), 11);
  EXPECT_EQ(ibv_rate_to_mult(IBV_RATE_800_GBPS), 320);
  EXPECT_EQ(ibv_rate_to_mult(IBV_RATE_14_GBPS), -1) << "not a multiple of 2.5 Gb/s";
  EXPECT_EQ(ibv_rate_to_mbps(IBV_RATE_10_GBPS), 10000);
  EXPECT_EQ(ibv_rate_to_mbps(IBV_RATE_56_GBPS), 56250);
  EXPECT_EQ(ibv_rate_to_mbps(IBV_RATE_100_GBPS), 103125);
  EXPECT_EQ(ibv_rate_to_mbps(IBV_RATE_800_GBPS), 850000);
}

TEST(Rates, TheUnknownIsSaidToBe) {
  EXPECT_EQ(ibv_rate_to_mult(IBV_RATE_MAX), -1);
  EXPECT_EQ(ibv_rate_to_mbps(static_cast<ibv_rate>(31)), -1);
  EXPECT_EQ(mult_to_ibv_rate(-1), IBV_RATE_MAX);
  EXPECT_EQ(mult_to_ibv_rate(5), IBV_RATE_MAX);
  EXPECT_EQ(mbps_to_ibv_rate(123), IBV_RATE_MAX);
}

}  // namespace
