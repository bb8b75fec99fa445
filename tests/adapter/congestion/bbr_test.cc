// SPDX-License-Identifier: Apache-2.0
#include "adapter/congestion/bbr.h"

#include <algorithm>
#include <deque>

#include <gtest/gtest.h>

#include "adapter/congestion/flow.h"

namespace verbena::congestion {
namespace {

using roce::Psn;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr uint32_t kPacket = 1088;
constexpr Sizes kSizes{kPacket, 60 * kPacket, 64 * kPacket};

// A pipe with a rate, a round trip and an unlimited queue. Packets are acknowledged one by one.
class Pipe {
 public:
  Pipe(uint64_t rate, Duration round_trip) : rate_(rate), round_trip_(round_trip) {}

  // For `time`, sends whatever the flow allows.
  void run(Duration time) {
    const TimePoint end = now_ + time;
    while (now_ < end) {
      send();
      const TimePoint wake = flow_.may_send(now_) ? kNever : flow_.may_send_at();
      const TimePoint next = std::min(answers_.empty() ? kNever : answers_.front(), wake);
      if (next > end) break;
      now_ = std::max(now_, next);
      while (!answers_.empty() && answers_.front() <= now_) answer();
    }
    now_ = end;
  }
  void set_rate(uint64_t rate) { rate_ = rate; }
  // The sender gets no processor for `time`.
  void stand_still(Duration time) { now_ += time; }
  // Loses every `packets`-th packet; 0: none.
  void lose_one_in(uint32_t packets) { lose_one_in_ = packets; }
  void tell(const Incast& incast) { flow_.told(incast); }
  uint64_t take_delivered() { return std::exchange(delivered_, 0); }
  // Returns how long a packet sent now waits for those before it.
  Duration queue() const { return std::max(Duration(0), free_at_ - now_); }
  Flow& flow() { return flow_; }

 private:
  void send() {
    while (flow_.may_send(now_) && in_flight_ + kPacket <= flow_.window()) {
      flow_.sent(next_, 1, kPacket, false, in_flight_, now_);
      flow_.end_run();
      ++next_;
      in_flight_ += kPacket;
      free_at_ = std::max(free_at_, now_) + Duration(uint64_t{kPacket} * 1'000'000'000 / rate_);
      answers_.push_back(free_at_ + round_trip_);
    }
  }
  void answer() {
    answers_.pop_front();
    in_flight_ -= kPacket;
    if (lose_one_in_ != 0 && ++answered_ % lose_one_in_ == 0) {
      flow_.lost(kPacket);
    } else {
      delivered_ += kPacket;
      flow_.arrived(kPacket);
      flow_.took_time(oldest_, oldest_ + 1);
    }
    flow_.answered(in_flight_, now_);
    ++oldest_;
    flow_.settled(oldest_);
  }

  uint64_t rate_;
  const Duration round_trip_;
  Flow flow_{Kind::kBbr, kSizes};
  TimePoint now_{seconds(1)};
  TimePoint free_at_{};
  std::deque<TimePoint> answers_;
  Psn next_;
  Psn oldest_;
  uint64_t in_flight_ = 0;
  uint64_t delivered_ = 0;
  uint32_t lose_one_in_ = 0;
  uint32_t answered_ = 0;
};

struct PipeCase {
  const char* name;
  uint64_t rate;
  Duration round_trip;
};

class ProbingOf : public testing::TestWithParam<PipeCase> {};

TEST_P(ProbingOf, FillsThePipeAndNotTheQueue) {
  const PipeCase& c = GetParam();
  Pipe pipe(c.rate, c.round_trip);
  pipe.run(40 * c.round_trip);
  pipe.take_delivered();
  pipe.run(seconds(1));
  EXPECT_GE(static_cast<double>(pipe.take_delivered()), 0.95 * static_cast<double>(c.rate));
  // The first packets leave together, and take long on a slow path.
  EXPECT_LE(pipe.queue(), 3 * c.round_trip);
}
INSTANTIATE_TEST_SUITE_P(Pipes, ProbingOf,
                         testing::Values(PipeCase{"Slow", 1'250'000, milliseconds(20)},
                                         PipeCase{"Gigabit", 125'000'000, milliseconds(2)},
                                         PipeCase{"Far", 125'000'000, milliseconds(50)},
                                         PipeCase{"Fast", 1'250'000'000, milliseconds(1)}),
                         [](const auto& test) { return test.param.name; });

TEST(ProbingTest, FollowsAPathWhoseRateChanges) {
  Pipe pipe(125'000'000, milliseconds(2));
  pipe.run(seconds(1));
  pipe.set_rate(25'000'000);
  pipe.run(milliseconds(500));
  pipe.take_delivered();
  pipe.run(seconds(1));
  EXPECT_GE(pipe.take_delivered(), 23'000'000u);
  pipe.set_rate(125'000'000);
  pipe.run(milliseconds(500));
  pipe.take_delivered();
  pipe.run(seconds(1));
  EXPECT_GE(pipe.take_delivered(), 115'000'000u);
}

TEST(ProbingTest, GoesOnSoonAfterItHasStoodStill) {
  for (const Duration time : {Duration(milliseconds(700)), Duration(seconds(30))}) {
    Pipe pipe(125'000'000, milliseconds(10));
    pipe.run(seconds(2));
    pipe.stand_still(time);
    pipe.run(milliseconds(500));
    pipe.take_delivered();
    pipe.run(seconds(1));
    EXPECT_GE(pipe.take_delivered(), 100'000'000u);
  }
}

TEST(ProbingTest, LeavesANearPathToTheWindowAlone) {
  Pipe pipe(1'250'000'000, microseconds(20));
  pipe.run(milliseconds(100));
  EXPECT_EQ(pipe.flow().rate(), 0u);
  EXPECT_GE(pipe.flow().window(), 2 * kSizes.burst - kSizes.run);
}

// Single losses reduce the window below the data that such a path holds while its machine is busy.
TEST(ProbingTest, KeepsToTheModelOnANearPathThatLosesPackets) {
  Pipe pipe(125'000'000, microseconds(90));
  pipe.lose_one_in(100);
  pipe.run(seconds(1));
  EXPECT_NE(pipe.flow().rate(), 0u);
  EXPECT_GE(pipe.flow().window(), 128u * 1024);
  pipe.lose_one_in(0);
  pipe.run(seconds(4));
  EXPECT_EQ(pipe.flow().rate(), 0u) << "the losses are long over";
}

TEST(ProbingTest, DoesNotHeedLosses) {
  Pipe pipe(125'000'000, milliseconds(2));
  pipe.run(seconds(1));
  const uint64_t window = pipe.flow().window();
  for (int i = 0; i < 100; ++i) pipe.flow().lost(kPacket);
  EXPECT_EQ(pipe.flow().window(), window);
}

// Rates measured while hardly anything was sent must not keep the rate that low.
TEST(ProbingTest, NeverSendsLessThanTheLeastWindowInARoundTrip) {
  constexpr uint64_t kLeastWindow = 4 * kPacket;
  Bbr probing(kSizes);
  TimePoint now{seconds(1)};
  uint64_t delivered = 0;
  for (int round = 0; round < 100; ++round) {
    now += milliseconds(2);
    for (int i = 0; i < 10; ++i, delivered += kPacket) {
      probing.on_arrival({.now = now,
                          .arrived = kPacket,
                          .round_trip = milliseconds(2),
                          .rate = 10'000,
                          .delivered = delivered,
                          .sent_at = delivered});
    }
  }
  EXPECT_GE(probing.allowance().rate, kLeastWindow * 500 * 9 / 10);
  EXPECT_GE(probing.allowance().window, kLeastWindow);
}

TEST(ProbingTest, TriesLittleInSilence) {
  Pipe pipe(125'000'000, milliseconds(2));
  pipe.run(seconds(1));
  const uint64_t window = pipe.flow().window();
  pipe.flow().timed_out();
  EXPECT_EQ(pipe.flow().window(), kPacket);
  pipe.run(milliseconds(100));
  EXPECT_GE(pipe.flow().window(), window / 2) << "the path is as it was";
}

TEST(ProbingTest, LeavesTheQueueToOthersWhoSendToTheSameReceiver) {
  constexpr uint64_t kRate = 8'000'000;
  const auto window_beside = [](uint32_t senders) {
    Pipe pipe(kRate, milliseconds(2));
    pipe.run(milliseconds(500));
    pipe.tell({.senders = senders, .dip = 0});
    pipe.run(milliseconds(100));
    return pipe.flow().window();
  };
  EXPECT_GT(window_beside(1), window_beside(4));
  EXPECT_GT(window_beside(4), window_beside(16));
}

TEST(ProbingTest, LooksForTheRoundTripWithTheOthers) {
  Pipe pipe(125'000'000, milliseconds(2));
  pipe.run(milliseconds(300));
  const uint64_t window = pipe.flow().window();
  pipe.tell({.senders = 2, .dip = 1});
  EXPECT_LT(pipe.flow().window(), window / 2);
  pipe.run(milliseconds(100));
  EXPECT_GT(pipe.flow().window(), window / 2);
  pipe.tell({.senders = 2, .dip = 1});
  EXPECT_GT(pipe.flow().window(), window / 2) << "it has done so";
  pipe.tell({.senders = 1, .dip = 2});
  EXPECT_GT(pipe.flow().window(), window / 2) << "it is alone";
}

}  // namespace
}  // namespace verbena::congestion
