// SPDX-License-Identifier: Apache-2.0
// Many threads at one shard. Worth most under the thread sanitizer.
#include <latch>

#include "adapter/engine/engine_thread.h"
#include "adapter/engine/support/shard_test.h"

namespace verbena::engine {
namespace {

class ShardThreads : public ShardTest {
 protected:
  ShardThreads() : ShardTest(MonotonicClock::now) {}
};

TEST_F(ShardThreads, ExclusiveSectionsExcludeEachOtherAndNoPostIsLost) {
  constexpr int kPosters = 3;
  constexpr int kPosts = 3000;
  auto engine = EngineThread::start(*shard, -1, [] { return -1; });
  ASSERT_TRUE(engine);
  std::vector<std::unique_ptr<ScriptedQp>> qps;
  for (int i = 0; i < kPosters; ++i) {
    qps.push_back(std::make_unique<ScriptedQp>(add_qpn(), &shard->routes()));
    add(*qps.back());
  }
  std::latch begin(kPosters + 2);
  std::vector<std::thread> threads;
  for (auto& posted : qps) {
    threads.emplace_back([&] {
      begin.arrive_and_wait();
      for (int i = 0; i < kPosts; ++i) {
        posted->post();
        shard->ring(*posted);
        if (i % 7 == 0) shard->poll();
        if (i % 97 == 0) shard->expect_sleep();
      }
    });
  }
  uint64_t sections = 0;  // what the lock guards
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      begin.arrive_and_wait();
      for (int i = 0; i < kPosts; ++i) shard->exclusively([&] { ++sections; });
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(shard->exclusively([&] { return sections; }), 2u * kPosts);

  // Whatever is left over is the engine thread's.
  const TimePoint patience = MonotonicClock::now() + std::chrono::seconds(20);
  for (const auto& posted : qps) {
    while (posted->unsent() > 0 && MonotonicClock::now() < patience) std::this_thread::yield();
    EXPECT_EQ(posted->unsent(), 0u);
  }
  shard->exclusively([&] {
    for (auto& posted : qps) shard->remove(*posted);
  });
  EXPECT_EQ(sent().size(), static_cast<size_t>(kPosters) * kPosts);
}

// Post once and wait until it has left, again and again: a lost doorbell is a hang, not a delay.
TEST_F(ShardThreads, EachPostLeavesThoughOthersHaveTheLock) {
  constexpr int kPosts = 2000;
  auto engine = EngineThread::start(*shard, -1, [] { return -1; });
  ASSERT_TRUE(engine);
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop) shard->exclusively([] {});
  });
  const TimePoint patience = MonotonicClock::now() + std::chrono::seconds(60);
  for (int i = 0; i < kPosts; ++i) {
    qp->post();
    shard->ring(*qp);
    while (qp->unsent() > 0) {
      ASSERT_LT(MonotonicClock::now(), patience) << "post " << i << " never left";
      std::this_thread::yield();
    }
  }
  stop = true;
  busy.join();
}

TEST_F(ShardThreads, EngineThreadDrainsAFullPortByItsDescriptor) {
  auto engine = EngineThread::start(*shard, -1, [] { return -1; });
  ASSERT_TRUE(engine);
  sent_packets.set_capacity(2);
  constexpr uint32_t kPosts = 500;
  for (uint32_t i = 0; i < kPosts; ++i) qp->post();
  shard->ring(*qp);
  size_t left = 0;
  const TimePoint patience = MonotonicClock::now() + std::chrono::seconds(20);
  while (left < kPosts && MonotonicClock::now() < patience) {
    left += sent().size();
    std::this_thread::yield();
  }
  EXPECT_EQ(left, kPosts);
}

TEST_F(ShardThreads, EngineThreadTellsOfNewsFromTheAgent) {
  const UniqueFd news(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  std::atomic<int> told{0};
  const auto on_control = [&] {
    uint64_t ignored;
    if (::read(news.get(), &ignored, sizeof ignored) != sizeof ignored) abort();
    if (++told == 1) throw std::bad_alloc();  // it goes on all the same
    return news.get();
  };
  auto engine = EngineThread::start(*shard, news.get(), on_control);
  ASSERT_TRUE(engine);
  for (int expected = 1; expected <= 2; ++expected) {
    const uint64_t one = 1;
    ASSERT_EQ(::write(news.get(), &one, sizeof one), static_cast<ssize_t>(sizeof one));
    const TimePoint patience = MonotonicClock::now() + std::chrono::seconds(20);
    while (told < expected && MonotonicClock::now() < patience) std::this_thread::yield();
    EXPECT_EQ(told, expected);
  }
}

}  // namespace
}  // namespace verbena::engine
