// SPDX-License-Identifier: Apache-2.0
// The number of senders that a receiver counts, and the reports about it that senders get.
#include <gtest/gtest.h>

#include "adapter/transport/control_packets.h"
#include "adapter/transport/incast.h"

namespace verbena::transport {
namespace {

using std::chrono::milliseconds;

class IncastMeterTest : public testing::Test {
 protected:
  // The first sender sends `bytes` in each interval, the others `bytes_of_others`.
  void pass(Duration time, uint32_t senders, uint64_t bytes, uint64_t bytes_of_others) {
    for (const TimePoint end = now + time; now < end; now += IncastMeter::kInterval) {
      for (uint32_t i = 0; i < senders; ++i) meter.add(i == 0 ? bytes : bytes_of_others, now);
    }
  }
  uint32_t senders() const { return meter.get().senders; }

  IncastMeter meter;
  TimePoint now{std::chrono::seconds(1)};
};

TEST_F(IncastMeterTest, CountsSendersByWhatTheySend) {
  EXPECT_EQ(senders(), 1u);
  pass(milliseconds(100), 16, 1000, 1000);
  EXPECT_EQ(senders(), 16u);
  pass(milliseconds(100), 16, 1'000'000, 1000);
  EXPECT_EQ(senders(), 1u) << "the others send next to nothing";
  pass(milliseconds(100), 3, 1'000'000, 500'000);
  EXPECT_EQ(senders(), 3u);
  pass(milliseconds(100), 100'000, 10, 10);
  EXPECT_EQ(senders(), congestion::Incast::kMaxSenders);
}

TEST_F(IncastMeterTest, ForgetsSoonWhoSendsNoMore) {
  pass(milliseconds(100), 16, 1000, 1000);
  pass(2 * IncastMeter::kInterval, 1, 1000, 0);
  EXPECT_EQ(senders(), 1u);
  pass(milliseconds(100), 16, 1000, 1000);
  now += std::chrono::seconds(1);
  meter.add(1000, now);
  EXPECT_EQ(senders(), 1u);
}

// Shards read the clock at different times.
TEST_F(IncastMeterTest, ForgetsNothingForOneWhoseClockIsBehind) {
  pass(milliseconds(100), 16, 1000, 1000);
  meter.add(1000, now);
  meter.add(1000, now - IncastMeter::kInterval);
  meter.add(1000, now);
  EXPECT_EQ(senders(), 16u);
}

TEST_F(IncastMeterTest, CallsForADipNowAndThenAndSoonerForNewcomers) {
  pass(milliseconds(2000), 2, 1000, 1000);
  const uint8_t before = meter.get().dip;
  pass(milliseconds(8000), 2, 1000, 1000);
  EXPECT_NEAR((meter.get().dip - before) & (congestion::Incast::kDips - 1), 10 % congestion::Incast::kDips,
              1);
  for (const uint8_t last = meter.get().dip; meter.get().dip == last;) pass(milliseconds(1), 2, 1000, 1000);
  const uint8_t last = meter.get().dip;
  pass(2 * IncastMeter::kBeforeNewcomers, 4, 1000, 1000);
  EXPECT_EQ(meter.get().dip, (last + 1) % congestion::Incast::kDips);
}

TEST_F(IncastMeterTest, TellsEachSenderOnceForEachDipAndAlsoThatItIsAlone) {
  IncastShare one;
  IncastShare other;
  // Returns how often the first sender gets a report in `time`.
  const auto told = [&](Duration time, bool with_other) {
    int times = 0;
    for (const TimePoint end = now + time; now < end; now += milliseconds(1)) {
      times += one.on_packet(meter, 1000, now) ? 1 : 0;
      if (with_other) other.on_packet(meter, 1000, now);
    }
    return times;
  };
  EXPECT_EQ(told(milliseconds(8000), /*with_other=*/false), 0);
  EXPECT_NEAR(told(milliseconds(8000), /*with_other=*/true), 12, 1) << "more often at first";
  EXPECT_EQ(told(milliseconds(8000), /*with_other=*/false), 1);
}

TEST(Sack, TellOfOtherSenders) {
  std::array<std::byte, Sack::kMaxBytes> payload;
  for (uint32_t senders = 1; senders < 300; ++senders) {
    Sack arrivals;
    arrivals.expected = roce::Psn(0xfffffe);
    arrivals.continues = senders % 2 == 0;
    arrivals.incast = {.senders = senders, .dip = static_cast<uint8_t>(senders % congestion::Incast::kDips)};
    const uint32_t bytes = arrivals.write(payload);
    const Sack read = Sack::read({payload.data(), bytes});
    EXPECT_EQ(read.expected, arrivals.expected);
    EXPECT_EQ(read.continues, arrivals.continues);
    EXPECT_EQ(read.incast.dip, arrivals.incast.dip);
    EXPECT_LE(read.incast.senders, senders);
    EXPECT_GE(read.incast.senders, std::min(senders, congestion::Incast::kMaxSenders) * 2 / 3);
  }
}

}  // namespace
}  // namespace verbena::transport
