// SPDX-License-Identifier: Apache-2.0
#include "adapter/engine/doorbells.h"

#include <array>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "adapter/engine/support/scripted_qp.h"
#include "base/spin_lock.h"

namespace verbena::engine {
namespace {

TEST(Doorbells, AreAnsweredInTheOrderOfRinging) {
  ScriptedQp a(roce::Qpn(1)), b(roce::Qpn(2)), c(roce::Qpn(3));
  Doorbells doorbells;
  EXPECT_FALSE(doorbells.any());
  for (ScriptedQp* qp : {&b, &a, &c}) doorbells.ring(*qp);
  EXPECT_TRUE(doorbells.any());
  std::vector<transport::QueuePair*> answered;
  doorbells.take([&](transport::QueuePair& qp) { answered.push_back(&qp); });
  EXPECT_EQ(answered, (std::vector<transport::QueuePair*>{&b, &a, &c}));
  EXPECT_FALSE(doorbells.any());
}

TEST(Doorbells, RungTwiceIsAnsweredOnce) {
  ScriptedQp qp(roce::Qpn(1));
  Doorbells doorbells;
  doorbells.ring(qp);
  doorbells.ring(qp);
  int answers = 0;
  doorbells.take([&](transport::QueuePair&) { ++answers; });
  EXPECT_EQ(answers, 1);
}

TEST(Doorbells, RungWhileAnsweringCountsForTheNextTime) {
  ScriptedQp qp(roce::Qpn(1));
  Doorbells doorbells;
  doorbells.ring(qp);
  doorbells.take([&](transport::QueuePair& rung) { doorbells.ring(rung); });
  int answers = 0;
  doorbells.take([&](transport::QueuePair&) { ++answers; });
  EXPECT_EQ(answers, 1);
}

// As the shard does it: the thread that finds the lock free answers for all.
class Combiner {
 public:
  void ring(ScriptedQp& qp) {
    for (Line& line : contended_) line.value.fetch_add(1, std::memory_order_relaxed);
    doorbells_.ring(qp);
    if (!lock_.try_lock()) return;
    do {
      doorbells_.take([&](transport::QueuePair& rung) {
        ++static_cast<ScriptedQp&>(rung).received;
        // Stores to lines that the other core has: they keep the store that lets go of the lock waiting.
        for (Line& line : contended_) line.value.store(0, std::memory_order_relaxed);
      });
      lock_.unlock_and_look();
    } while (doorbells_.any() && lock_.try_lock());
  }

 private:
  struct alignas(64) Line {
    std::atomic<uint64_t> value{0};
  };
  alignas(64) SpinLock lock_;
  alignas(64) Doorbells doorbells_;
  std::array<Line, 4> contended_;
};

// Two threads go on together, within some ten nanoseconds when both have a processor.
class Rendezvous {
 public:
  void meet() {
    const uint32_t round = round_.load(std::memory_order_acquire);
    if (waiting_.fetch_add(1, std::memory_order_acq_rel) == 1) {
      waiting_.store(0, std::memory_order_relaxed);
      round_.store(round + 1, std::memory_order_release);
      return;
    }
    for (int spins = 0; round_.load(std::memory_order_acquire) == round; ++spins) {
      if (spins > 1000) sched_yield();
    }
  }

 private:
  std::atomic<uint32_t> waiting_{0};
  std::atomic<uint32_t> round_{0};
};

// One ring each, at the same time; when both have returned, both must have been answered. A holder who looks
// for doorbells before the others can see the lock free loses one now and then.
TEST(Doorbells, NoneIsLostBetweenTheLastLookAndLettingGo) {
  constexpr uint32_t kRounds = 50000;
  Combiner combiner;
  ScriptedQp a(roce::Qpn(1)), b(roce::Qpn(2));
  Rendezvous rendezvous;
  std::atomic<int> lost{0};
  const auto ring = [&](ScriptedQp& mine, uint32_t delay_modulus) {
    for (uint32_t round = 1; round <= kRounds; ++round) {
      rendezvous.meet();
      for (uint32_t i = round % delay_modulus; i > 0; --i) cpu_relax();
      combiner.ring(mine);
      rendezvous.meet();
      if (mine.received == round) continue;
      ++lost;
      mine.received = round;
    }
  };
  std::thread other(ring, std::ref(b), 7);
  ring(a, 5);
  other.join();
  EXPECT_EQ(lost, 0);
}

TEST(Doorbells, WhatIsPostedBeforeRingingIsSeenByTheThreadThatAnswers) {
  constexpr int kThreads = 4;
  constexpr int kPosts = 20000;
  std::array<std::unique_ptr<ScriptedQp>, 2> qps;
  for (auto& qp : qps) qp = std::make_unique<ScriptedQp>(roce::Qpn(1));
  std::array<std::atomic<uint64_t>, 2> posted{};
  std::array<uint64_t, 2> seen{};  // the lock guards it
  SpinLock lock;
  Doorbells doorbells;
  const auto answer = [&](transport::QueuePair& qp) {
    const size_t which = &qp == qps[0].get() ? 0 : 1;
    seen[which] = posted[which].load(std::memory_order_relaxed);
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, which = static_cast<size_t>(t) % 2] {
      for (int i = 0; i < kPosts; ++i) {
        posted[which].fetch_add(1, std::memory_order_relaxed);
        doorbells.ring(*qps[which]);
        if (!lock.try_lock()) continue;
        do {
          doorbells.take(answer);
          lock.unlock_and_look();
        } while (doorbells.any() && lock.try_lock());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(seen[0], posted[0].load());
  EXPECT_EQ(seen[1], posted[1].load());
}

}  // namespace
}  // namespace verbena::engine
