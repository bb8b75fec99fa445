// SPDX-License-Identifier: Apache-2.0
#include <sys/wait.h>
#include <unistd.h>

#include "adapter/engine/engine_thread.h"
#include "adapter/engine/support/shard_test.h"

namespace verbena::engine {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

class ShardFork : public ShardTest {};

TEST_F(ShardFork, AbandonedShardTakesCallsAndSendsNothing) {
  qp->post();
  ASSERT_TRUE(shard->before_fork());
  std::thread([&] { shard->ring(*qp); }).join();  // a doorbell nobody will answer
  shard->abandon();
  qp->post();
  shard->ring(*qp);
  shard->poll();
  shard->expect_sleep();
  EXPECT_EQ(shard->exclusively([] { return 7; }), 7);
  EXPECT_EQ(shard->run_engine().wake_at, kNever);
  shard->exclusively([&] { shard->remove(*qp); });
  EXPECT_THAT(sent(), IsEmpty());
  EXPECT_THAT(sleeper.said(), IsEmpty());
}

TEST_F(ShardFork, WhatIsPostedWhileForkingLeavesAfterwards) {
  ASSERT_TRUE(shard->before_fork());
  qp->post();
  std::thread([&] { shard->ring(*qp); }).join();
  EXPECT_THAT(sent(), IsEmpty());
  shard->after_fork_in_parent();
  EXPECT_THAT(sent(), SizeIs(1));
}

// fork() in the handler of a signal that came while this very thread had the lock.
TEST_F(ShardFork, LockThatCannotBeHadDoesNotHoldUpTheFork) {
  shard->exclusively([&] { EXPECT_FALSE(shard->before_fork()); });
  EXPECT_TRUE(shard->before_fork());
  shard->after_fork_in_parent();
}

// The engine thread had come for the lock and gone when the process forked; in the child there is none.
TEST_F(ShardFork, ChildOwesNothingToTheEngineThreadThatWaited) {
  ASSERT_TRUE(shard->before_fork());
  std::thread([&] { shard->run_engine(); }).join();
  shard->abandon();
  shard->poll();
  shard->ring(*qp);
  EXPECT_THAT(sent(), IsEmpty());
}

// Beside an engine thread, for which time has to pass.
class ShardForkBesideEngineThread : public ShardTest {
 protected:
  ShardForkBesideEngineThread() : ShardTest(MonotonicClock::now) {}
};

TEST_F(ShardForkBesideEngineThread, ChildNeitherHangsNorSendsAndTheParentGoesOn) {
  auto engine = EngineThread::start(*shard, -1, [] { return -1; });
  ASSERT_TRUE(engine);
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop) {
      shard->poll();
      std::this_thread::yield();
    }
  });
  for (int round = 0; round < 10; ++round) {
    const bool locked = shard->before_fork();
    EXPECT_TRUE(locked);
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(20);  // ends a child that hangs
      shard->abandon();
      (*engine)->abandon();
      qp->post();
      shard->ring(*qp);
      shard->poll();
      shard->exclusively([&] { shard->remove(*qp); });
      engine->reset();
      ::_exit(sent_packets.size() == 0 ? 0 : 1);
    }
    if (locked) shard->after_fork_in_parent();
    ASSERT_GT(child, 0);
    int status_of_child = -1;
    ASSERT_EQ(::waitpid(child, &status_of_child, 0), child);
    EXPECT_EQ(status_of_child, 0);
  }
  stop = true;
  busy.join();
  packet_arrives();
  const TimePoint patience = MonotonicClock::now() + std::chrono::seconds(20);
  const auto received = [&] { return shard->exclusively([&] { return qp->received; }); };
  while (received() == 0 && MonotonicClock::now() < patience) std::this_thread::yield();
  EXPECT_EQ(received(), 1u);
}

}  // namespace
}  // namespace verbena::engine
