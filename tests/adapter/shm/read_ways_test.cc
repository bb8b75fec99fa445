// SPDX-License-Identifier: Apache-2.0
#include "adapter/shm/read_ways.h"

#include <gtest/gtest.h>

namespace verbena::engine {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr uint64_t kBytes = 1 << 20;
constexpr uint32_t kRun = 64;  // READs between two questions

// A program that reads as fast as it can, and a machine on which a READ takes so long by either way.
class ReadWaysTest : public testing::Test {
 protected:
  // Goes on for so many READs; returns how many of them went by the kernel.
  int stream(int reads) {
    int by_kernel = 0;
    for (int i = 0; i < reads; ++i) {
      if (by_packets_) {
        now += packets;
        if (++run_ % kRun == 0) by_packets_ = !ways.leave_packets(kRun * kBytes, now);
      } else if (ways.takes(kBytes, now)) {
        ways.copied(kBytes, now, now + kernel);
        now += kernel;
        ++by_kernel;
      } else {
        by_packets_ = true;
        run_ = 0;
      }
    }
    return by_kernel;
  }
  // The same for one that waits for each.
  int one_by_one(int reads, Duration pause) {
    int by_kernel = 0;
    for (int i = 0; i < reads; ++i) {
      const bool is_taken = ways.takes(kBytes, now);
      if (is_taken) ways.copied(kBytes, now, now + kernel);
      now += is_taken ? kernel : packets;
      now += pause;
      by_kernel += is_taken ? 1 : 0;
    }
    return by_kernel;
  }

  ReadWays ways;
  TimePoint now{std::chrono::hours(1)};
  Duration kernel = microseconds(50);
  Duration packets = microseconds(100);

 private:
  bool by_packets_ = true;
  uint32_t run_ = 0;
};

TEST_F(ReadWaysTest, AStreamGoesByTheKernelWhereThatIsFaster) {
  stream(1000);
  EXPECT_EQ(stream(1000), 1000);
}

TEST_F(ReadWaysTest, AStreamGoesByPacketsWhereTheyAreFaster) {
  packets = microseconds(25);
  stream(1000);
  EXPECT_EQ(stream(1000), 0);
}

TEST_F(ReadWaysTest, TryingTheOtherWayCostsLittle) {
  for (const Duration slower : {microseconds(30), microseconds(300)}) {
    packets = slower;
    const int all = 400'000;
    const int by_kernel = stream(all);
    EXPECT_LT(slower > kernel ? all - by_kernel : by_kernel, all / 50);
  }
}

TEST_F(ReadWaysTest, IsFoundOutAgainWhenProcessorsHaveChanged) {
  stream(10'000);
  packets = microseconds(25);
  const TimePoint end = now + seconds(3);
  while (now < end) stream(100);
  EXPECT_EQ(stream(1000), 0);
}

TEST_F(ReadWaysTest, AReadAfterAPauseGoesByTheKernel) {
  packets = microseconds(25);
  EXPECT_EQ(one_by_one(100, milliseconds(1)), 100);
}

TEST_F(ReadWaysTest, OneBehindTheOtherIsMeasuredToo) {
  packets = microseconds(25);
  one_by_one(100, microseconds(1));
  EXPECT_EQ(one_by_one(1000, microseconds(1)), 0);
  packets = microseconds(200);
  const TimePoint end = now + seconds(3);
  while (now < end) one_by_one(10, microseconds(1));
  EXPECT_EQ(one_by_one(100, microseconds(1)), 100);
}

TEST_F(ReadWaysTest, PausesBetweenPacketsAreNotMeasured) {
  packets = microseconds(25);
  stream(2 * kRun);
  now += seconds(1);
  stream(1000);
  EXPECT_EQ(stream(1000), 0);
}

}  // namespace
}  // namespace verbena::engine
