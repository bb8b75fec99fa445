// SPDX-License-Identifier: Apache-2.0
#include "adapter/congestion/flow.h"

#include <gtest/gtest.h>

namespace verbena::congestion {
namespace {

using roce::Psn;
using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr uint32_t kPacket = 1088;

class FlowTest : public testing::Test {
 protected:
  void send(uint32_t psn, uint32_t packets, bool repeated = false) {
    flow.sent(Psn(psn), packets, packets * kPacket, repeated, in_flight, now);
    flow.end_run();
    in_flight += packets * kPacket;
  }
  void answer(uint32_t newest, uint32_t packets) {
    tell(newest + 1 - packets, packets);
    flow.settled(Psn(newest + 1));
  }
  // Reports that packets sent once have arrived.
  void tell(uint32_t first, uint32_t packets) {
    flow.took_time(Psn(first), Psn(first + packets));
    tell_of_repairs(packets);
  }
  void tell_of_repairs(uint32_t packets) {
    flow.arrived(uint64_t{packets} * kPacket);
    in_flight -= packets * kPacket;
    flow.answered(in_flight, now);
  }

  Flow flow{Kind::kFixed, {kPacket, 60 * kPacket, 64 * kPacket}};
  uint64_t in_flight = 0;
  TimePoint now{std::chrono::seconds(1)};
};

TEST_F(FlowTest, MeasuresARoundTripFromRunToAnswer) {
  send(0, 10);
  now += milliseconds(3);
  answer(9, 10);
  EXPECT_EQ(flow.round_trip().smoothed(), milliseconds(3));
  EXPECT_EQ(flow.round_trip().least(), milliseconds(3));
}

TEST_F(FlowTest, MeasuresNoneByPacketsThatWereSentTwice) {
  send(0, 10);
  now += milliseconds(3);
  flow.starts_over(Psn(0));
  in_flight = 0;
  send(0, 10, true);
  now += milliseconds(1);
  answer(9, 10);
  EXPECT_FALSE(flow.round_trip().is_known()) << "whose answer is it?";
}

// A repair closes a gap long after the packets behind it arrived and were reported.
TEST_F(FlowTest, MeasuresNoneByARepair) {
  send(0, 10);
  now += milliseconds(3);
  tell(1, 9);
  now += milliseconds(50);
  tell_of_repairs(1);
  EXPECT_EQ(flow.round_trip().latest(), milliseconds(3));
}

TEST_F(FlowTest, MeasuresTheRoundTripOfWhatHasBeenOvertaken) {
  send(0, 10);
  now += milliseconds(1);
  tell(9, 1);
  now += milliseconds(2);
  tell(0, 9);
  EXPECT_EQ(flow.round_trip().latest(), milliseconds(3));
}

TEST_F(FlowTest, RemembersWhenAPacketLeft) {
  const TimePoint first = now;
  send(0, 10);
  now += milliseconds(1);
  send(10, 10);
  EXPECT_EQ(flow.sent_at(Psn(9)), first);
  EXPECT_EQ(flow.sent_at(Psn(10)), now);
  EXPECT_EQ(flow.sent_at(Psn(20)), kNever);
  answer(9, 10);
  EXPECT_EQ(flow.sent_at(Psn(9)), kNever);
}

TEST(RttEstimator, FollowsRfc6298) {
  RttEstimator round_trip;
  round_trip.on_sample(milliseconds(8));
  EXPECT_EQ(round_trip.timeout(), milliseconds(8 + 4 * 4));
  round_trip.on_sample(milliseconds(16));
  EXPECT_EQ(round_trip.smoothed(), milliseconds(9));
  EXPECT_EQ(round_trip.timeout(), milliseconds(9 + 4 * 5));
  for (int i = 0; i < 100; ++i) round_trip.on_sample(milliseconds(16));
  EXPECT_LT(round_trip.timeout(), milliseconds(17));
  EXPECT_EQ(round_trip.least(), milliseconds(8));
}

}  // namespace
}  // namespace verbena::congestion
