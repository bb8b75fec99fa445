// SPDX-License-Identifier: Apache-2.0
// Threads that block in ibv_get_cq_event(), and are woken by a peer rather than by the engine thread. No
// thread sleeps on while there is an event, even if other threads come, leave, are interrupted or stop
// calling verbs.
#include <atomic>
#include <climits>
#include <cstdlib>
#include <string_view>
#include <thread>

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "adapter/objects/support/endpoint.h"
#include "adapter/objects/support/environment.h"
#include "adapter/objects/support/events.h"
#include "base/watched_thread.h"

namespace verbena::adapter::testing {
namespace {

using test::WatchedThread;

// Two connected endpoints, each made by a thread of its own and so on a shard of its own.
struct TwoShards {
  TwoShards(const Options& of_a, const Options& of_b) {
    ::setenv("VERBENA_SHARDS", "2", 1);
    std::thread([&] { a = std::make_unique<Endpoint>(of_a); }).join();
    std::thread([&] { b = std::make_unique<Endpoint>(of_b); }).join();
    ::unsetenv("VERBENA_SHARDS");
    a->connect(b->address());
    b->connect(a->address());
  }

  std::unique_ptr<Endpoint> a;
  std::unique_ptr<Endpoint> b;
};

class EventWait : public ::testing::Test {
 protected:
  EventWait() {
    // From here on packets use shared memory, and the wake-up exists.
    send(a, b);
    EXPECT_EQ(b.completion().status, IBV_WC_SUCCESS);
    EXPECT_EQ(a.completion().status, IBV_WC_SUCCESS);
    EXPECT_EQ(ibv_req_notify_cq(b.cq.get(), 0), 0);
  }

  TwoShards two{Options{}, Options{.with_channel = true}};
  Endpoint& a = *two.a;
  Endpoint& b = *two.b;
};

TEST_F(EventWait, SleeperIsWokenByAMessage) {
  WatchedThread waiter([&] { EXPECT_EQ(get_event(b), 0); });
  ASSERT_TRUE(waiter.falls_asleep());
  send(a, b);
  waiter.join();
  EXPECT_EQ(b.completion().status, IBV_WC_SUCCESS);
  EXPECT_FALSE(readable(b.channel->fd)) << "what the sleeper took is not told again";
}

// Both sleep at one shard, in turn: one of them at its wake-up, the other at its channel's descriptor.
TEST(EventWaits, TwoThreadsOfOneShardLoseNoEvent) {
  Pair pair({.with_channel = true});
  play(pair.a, pair.b, 5000);
}

TEST(EventWaits, ThreadsOfTwoShardsLoseNoEvent) {
  TwoShards two(Options{.with_channel = true}, Options{.with_channel = true});
  play(*two.a, *two.b, 5000);
}

TEST(EventWaits, ManyPairsOfThreadsOfOneShardLoseNoEvent) {
  constexpr int kPairs = 4;
  std::vector<std::unique_ptr<Pair>> pairs;
  for (int i = 0; i < kPairs; ++i) pairs.push_back(std::make_unique<Pair>(Options{.with_channel = true}));
  std::vector<std::thread> threads;
  for (auto& pair : pairs) threads.emplace_back([&] { play(pair->a, pair->b, 1000); });
  for (std::thread& thread : threads) thread.join();
}

// One thread polls, and so consumes packets whose wake-up the other waits for.
TEST(EventWaits, SleeperBesideAThreadThatPollsLosesNoEvent) {
  Pair polled;
  Pair slept({.with_channel = true});
  std::atomic<bool> stop{false};
  std::thread poller([&] {
    ibv_wc wc;
    while (!stop) EXPECT_EQ(ibv_poll_cq(polled.a.cq.get(), 1, &wc), 0);
  });
  play(slept.a, slept.b, 2000);
  stop = true;
  poller.join();
}

// The thread has its event and calls no verb any more, so the engine thread makes progress.
TEST_F(EventWait, WhoStaysAwayAfterAnEventIsDrivenFor) {
  for (int i = 0; i < 20; ++i) {
    WatchedThread waiter([&] { EXPECT_EQ(get_event(b), 0); });
    ASSERT_TRUE(waiter.falls_asleep());
    send(a, b);
    waiter.join();
    EXPECT_EQ(a.completion().status, IBV_WC_SUCCESS) << "it is acknowledged, though b is silent";
    EXPECT_EQ(b.completion().status, IBV_WC_SUCCESS);
    EXPECT_EQ(ibv_req_notify_cq(b.cq.get(), 0), 0);
    send(a, b);
    EXPECT_TRUE(readable(b.channel->fd, kPatienceMs)) << "it waits at the descriptor now";
    EXPECT_EQ(get_event(b), 0);
    EXPECT_EQ(b.completion().status, IBV_WC_SUCCESS);
    EXPECT_EQ(a.completion().status, IBV_WC_SUCCESS);
    EXPECT_EQ(ibv_req_notify_cq(b.cq.get(), 0), 0);
  }
}

TEST_F(EventWait, SeveralThreadsOfOneChannelAreAllServed) {
  constexpr size_t kThreads = 3;
  std::atomic<int> taken{0};
  std::vector<std::unique_ptr<WatchedThread>> waiters;
  for (size_t i = 0; i < kThreads; ++i) {
    waiters.push_back(std::make_unique<WatchedThread>([&] {
      if (get_event(b) == 0) ++taken;
    }));
    ASSERT_TRUE(waiters.back()->falls_asleep());
  }
  for (int i = 1; i <= static_cast<int>(kThreads); ++i) {
    send(a, b);
    ASSERT_TRUE(test::eventually([&] { return taken == i; }));
    EXPECT_EQ(b.completion().status, IBV_WC_SUCCESS);
    EXPECT_EQ(ibv_req_notify_cq(b.cq.get(), 0), 0);
  }
  for (auto& waiter : waiters) waiter->join();
}

// ---- signals, as in read(2)

void on_signal(int) {}

void install(int flags) {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = flags;
  ASSERT_EQ(::sigaction(SIGUSR1, &action, nullptr), 0);
}

TEST_F(EventWait, SignalInterruptsIt) {
  install(0);
  std::atomic<pthread_t> thread{};
  int answer = 0;
  WatchedThread waiter([&] {
    thread = ::pthread_self();
    answer = get_event(b);
  });
  ASSERT_TRUE(waiter.falls_asleep());
  ASSERT_EQ(::pthread_kill(thread, SIGUSR1), 0);
  waiter.join();
  EXPECT_EQ(answer, EINTR);
  send(a, b);
  EXPECT_TRUE(readable(b.channel->fd, kPatienceMs)) << "no thread waits for the wake-up any more";
}

TEST_F(EventWait, SignalWhoseHandlerRestartsCallsDoesNot) {
  install(SA_RESTART);
  std::atomic<pthread_t> thread{};
  WatchedThread waiter([&] {
    thread = ::pthread_self();
    EXPECT_EQ(get_event(b), 0);
  });
  ASSERT_TRUE(waiter.falls_asleep());
  ASSERT_EQ(::pthread_kill(thread, SIGUSR1), 0);
  ASSERT_TRUE(waiter.falls_asleep());
  send(a, b);
  waiter.join();
}

TEST_F(EventWait, CancelledThreadLeavesTheEventToOthers) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer does not know how a cancelled thread unwinds";
#endif
  for (int i = 0; i < 20; ++i) {
    std::atomic<pthread_t> thread{};
    std::atomic<bool> cancelled{true};
    std::thread waiter([&] {
      thread = ::pthread_self();
      get_event(b);
      cancelled = false;
    });
    ASSERT_TRUE(test::eventually([&] { return thread.load() != pthread_t{}; }));
    ASSERT_EQ(::pthread_cancel(thread), 0);
    waiter.join();
    EXPECT_TRUE(cancelled);
  }
  send(a, b);
  EXPECT_TRUE(readable(b.channel->fd, kPatienceMs));
  EXPECT_EQ(get_event(b), 0);
}

// Their events follow each other so quickly that they never sleep.
TEST(EventWaits, ThreadsThatNeverSleepCanBeCancelled) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer does not know how a cancelled thread unwinds";
#endif
  TwoShards two(Options{.with_channel = true}, Options{.with_channel = true});
  std::atomic<int> messages{0};
  std::thread a([&] { play(*two.a, true, INT_MAX, &messages); });
  std::thread b([&] { play(*two.b, false, INT_MAX, &messages); });
  EXPECT_TRUE(test::eventually([&] { return messages > 2000; }));
  EXPECT_EQ(::pthread_cancel(a.native_handle()), 0);
  a.join();
  EXPECT_EQ(::pthread_cancel(b.native_handle()), 0);
  b.join();
}

// ---- the channel or queue pair disappears during the sleep

// A thread that sleeps at the descriptor would not wake up, as with adapters.
TEST_F(EventWait, ChannelThatGoesAwayLetsTheSleeperGo) {
  const char* const local = std::getenv("VERBENA_LOCAL");
  if (local != nullptr && std::string_view(local) == "off") GTEST_SKIP() << "there is no bell";
  ibv_comp_channel* const channel = b.channel.get();
  int answer = 0;
  WatchedThread waiter([&] {
    ibv_cq* cq = nullptr;
    void* cq_context = nullptr;
    answer = ibv_get_cq_event(channel, &cq, &cq_context) == 0 ? 0 : errno;
  });
  ASSERT_TRUE(waiter.falls_asleep());
  b.qp.reset();
  b.cq.reset();
  b.channel.reset();
  waiter.join();
  EXPECT_EQ(answer, EBADF);
}

TEST_F(EventWait, SleeperStaysWhenAQueuePairGoesAway) {
  WatchedThread waiter([&] { EXPECT_EQ(get_event(b), 0); });
  ASSERT_TRUE(waiter.falls_asleep());
  b.qp.reset();
  // Another QP takes its place.
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = b.cq.get();
  init.cap = b.options.cap;
  init.qp_type = IBV_QPT_RC;
  b.qp.reset(ibv_create_qp(b.pd.get(), &init));
  ASSERT_NE(b.qp, nullptr);
  ibv_qp_attr attr = init_attributes(b.options);
  ASSERT_EQ(ibv_modify_qp(b.qp.get(), &attr, init_mask(IBV_QPT_RC)), 0);
  ASSERT_EQ(b.post_receive(1, b.piece(0, 8)), 0);
  b.modify_to(IBV_QPS_ERR);
  waiter.join();
}

#if !defined(__SANITIZE_THREAD__)  // does not support children of a process with threads
TEST_F(EventWait, SleeperOfTheParentSleepsOnWhenItForks) {
  WatchedThread waiter([&] { EXPECT_EQ(get_event(b), 0); });
  ASSERT_TRUE(waiter.falls_asleep());
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);  // ends a child that hangs
    // Verbs are harmless in the child, and take nothing from the parent.
    ibv_wc wc;
    ibv_poll_cq(b.cq.get(), 1, &wc);
    ibv_req_notify_cq(b.cq.get(), 0);
    ::_exit(0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(waiter.ended());
  send(a, b);
  waiter.join();
}
#endif

}  // namespace
}  // namespace verbena::adapter::testing
