// SPDX-License-Identifier: Apache-2.0
#include "agent/message_witness.h"

#include <atomic>
#include <chrono>

#include <gtest/gtest.h>

#include "base/lingering_socket.h"

namespace verbena::agent {
namespace {

using std::chrono::milliseconds;

constexpr TimePoint kLongAgo{};

class MessageWitnessTest : public testing::Test {
 protected:
  MessageWitness::Send takes(Duration time) {
    return [this, time] {
      ++sent;
      return time;
    };
  }
  // Runs the loop until the witness has reported this many milliseconds.
  void await(Duration excess) {
    while (reported < excess) loop.run_round();
  }

  EventLoop loop;
  std::atomic<int> sent{0};
  Duration reported{};
};

TEST_F(MessageWitnessTest, ReportsTheTimeThatAMessageTookLonger) {
  MessageWitness witness(
      loop, [this](Duration excess) { reported += excess; },
      takes(MessageWitness::kNormal + milliseconds(20)));
  witness.watch_until(kLongAgo);
  await(milliseconds(20));
  EXPECT_EQ(reported, milliseconds(20)) << "until this time one message is sent";
}

TEST_F(MessageWitnessTest, GoesOnUntilTheTimeThatIsAskedFor) {
  MessageWitness witness(
      loop, [this](Duration excess) { reported += excess; },
      takes(MessageWitness::kNormal + milliseconds(20)));
  witness.watch_until(kNever);
  await(milliseconds(60));
  EXPECT_EQ(reported % milliseconds(20), Duration::zero());
}

TEST_F(MessageWitnessTest, SendsNothingBeforeItIsAsked) {
  {
    const MessageWitness witness(
        loop, [this](Duration excess) { reported += excess; }, takes(milliseconds(1)));
  }
  EXPECT_EQ(sent, 0);
}

TEST_F(MessageWitnessTest, IsAskedAgain) {
  MessageWitness witness(
      loop, [this](Duration excess) { reported += excess; },
      takes(MessageWitness::kNormal + milliseconds(20)));
  for (int i = 1; i <= 3; ++i) {
    witness.watch_until(kLongAgo);
    await(i * milliseconds(20));
    EXPECT_EQ(reported, i * milliseconds(20));
  }
}

// A user's pause by processor time, as in UserTurns: the kernel was slow, so the pause ends.
TEST_F(MessageWitnessTest, EndsThePauseOfAUserWhoIsNotToBlame) {
  constexpr uid_t kUser = 1000;
  TimePoint now{std::chrono::hours(1)};
  EventLoop simulated(
      Duration::zero(), [&] { return now; }, [&] { return now; });
  MessageWitness witness(
      simulated, [&](Duration excess) { simulated.pardon(excess); },
      takes(MessageWitness::kNormal + milliseconds(60)));
  simulated.on_pause([&](TimePoint) { witness.watch_until(kLongAgo); });
  const auto take_long = [&] { now += milliseconds(30); };
  simulated.send_to(kUser, take_long);  // makes the user suspect
  simulated.send_to(kUser, take_long);
  ASSERT_FALSE(simulated.try_send_to(kUser, [] {})) << "the user pauses";
  while (!simulated.try_send_to(kUser, [] {})) simulated.run_round();
}

// With the real kernel. The messages are received, so the kernel closes their descriptors.
TEST(MessageToItself, LeavesNoDescriptor) {
  const auto send = MessageWitness::send_to_itself();
  const size_t before = test::open_descriptors();
  for (int i = 0; i < 10'000; ++i) ASSERT_GT(send(), Duration::zero());
  EXPECT_EQ(test::open_descriptors(), before);
}

}  // namespace
}  // namespace verbena::agent
