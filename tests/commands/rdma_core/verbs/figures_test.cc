// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include <gtest/gtest.h>

#include "commands/rdma_core/verbs/pingpong/pingpong.h"

namespace verbena::rdma_core {
namespace {

using std::chrono::milliseconds;

TEST(ReceiveClockTest, CountsWhatPassesBetweenTwoMessages) {
  ReceiveClock clock(UINT64_MAX);
  for (const uint64_t at : {100, 110, 140}) clock.received(at);
  EXPECT_EQ(clock.count(), 2U);
  EXPECT_EQ(clock.least(), 10U);
  EXPECT_EQ(clock.most(), 30U);
  EXPECT_EQ(clock.average(), 20.);
}

TEST(ReceiveClockTest, GoesOnPastTheEndOfItsBits) {
  ReceiveClock clock(0xff);
  clock.received(0xfe);
  clock.received(0x03);
  EXPECT_EQ(clock.most(), 5U);
}

TEST(ReceiveClockTest, OfOneMessageSaysNothing) {
  ReceiveClock clock(UINT64_MAX);
  clock.received(5);
  EXPECT_EQ(clock.count(), 0U);
}

TEST(Report, CountsBothDirections) {
  Settings settings;
  settings.size = 1000;
  settings.iterations = 500;
  Output output(false);
  testing::internal::CaptureStdout();
  report(settings, milliseconds(50), nullptr, output);
  std::fflush(stdout);
  EXPECT_EQ(
      testing::internal::GetCapturedStdout(),
      "1000000 bytes in 0.05 seconds = 160.00 Mbit/sec\n500 iters in 0.05 seconds = 100.00 usec/iter\n");
  EXPECT_EQ(output.object()["bytes"], 1000000);
  EXPECT_DOUBLE_EQ(output.object()["usec_per_iteration"], 100.);
}

TEST(Report, HasTheClockWhereThereIsOne) {
  ReceiveClock clock(UINT64_MAX);
  clock.received(0);
  clock.received(8);
  Output output(false);
  testing::internal::CaptureStdout();
  report(Settings(), milliseconds(1), &clock, output);
  std::fflush(stdout);
  EXPECT_NE(
      testing::internal::GetCapturedStdout().find("Average receive completion clock cycles = 8.000000\n"),
      std::string::npos);
  EXPECT_EQ(output.object()["receive_clock_cycles"]["max"], 8);
}

}  // namespace
}  // namespace verbena::rdma_core
