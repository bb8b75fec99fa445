// SPDX-License-Identifier: Apache-2.0
#include "adapter/queues/completion_queue.h"

#include <atomic>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "adapter/queues/completion_support.h"
#include "adapter/queues/work_queue.h"

namespace verbena::queues {
namespace {

using testing::ElementsAre;
using Event = CompletionQueue::Event;

class CompletionQueueTest : public testing::Test {
 protected:
  void create(uint32_t entries) { queue = *CompletionQueue::create(entries, &listener); }
  std::vector<uint64_t> poll(int count = 1000) {
    std::vector<ibv_wc> wcs(static_cast<size_t>(count));
    const int got = queue->poll(count, wcs.data());
    std::vector<uint64_t> ids;
    for (int i = 0; i < got; ++i) ids.push_back(wcs[static_cast<size_t>(i)].wr_id);
    return ids;
  }

  bool push_all(std::span<const CompletionQueue::Differing> entries) {
    return queue->push_all(Completion(), entries);
  }

  void take_all() {
    while (!poll().empty()) {
    }
  }

  Listener listener;
  std::unique_ptr<CompletionQueue> queue;
};

TEST_F(CompletionQueueTest, HasRoomForWhatWasAskedForAtLeast) {
  for (const auto& [asked, got] :
       {std::pair{1u, 2u}, {2u, 4u}, {3u, 4u}, {10u, 16u}, {4095u, 4096u}, {4096u, 8192u}}) {
    create(asked);
    EXPECT_EQ(queue->capacity(), got);
    for (uint32_t i = 0; i < got; ++i) queue->push(entry(i), false);
    EXPECT_EQ(listener.overflows, 0);
    EXPECT_EQ(poll(10000).size(), got);
  }
}

TEST_F(CompletionQueueTest, HoldsAtLeastWhatARequestQueueOfTheSameSizeHolds) {
  for (uint32_t asked = 1; asked <= 300; ++asked) {
    const auto requests = RecvQueue::create(asked, sizeof(ibv_sge));
    ASSERT_TRUE(requests);
    create(asked);
    EXPECT_GE(queue->capacity(), requests->capacity()) << asked;
    create(1000);
    ASSERT_TRUE(queue->resize(asked));
    EXPECT_GE(queue->capacity(), requests->capacity()) << asked;
    for (uint32_t i = 0; i < requests->capacity(); ++i) EXPECT_TRUE(queue->push(entry(i), false));
    EXPECT_EQ(poll(1000).size(), requests->capacity());
  }
}

TEST_F(CompletionQueueTest, NeverHasMoreThanTheMaximum) {
  create(CompletionQueue::kMaxEntries);
  EXPECT_EQ(queue->capacity(), CompletionQueue::kMaxEntries);
  create(CompletionQueue::kMaxEntries - 1);
  EXPECT_EQ(queue->capacity(), CompletionQueue::kMaxEntries);
}

TEST_F(CompletionQueueTest, GivesEntriesInOrderAndNoMoreThanAskedFor) {
  create(15);
  EXPECT_TRUE(queue->empty());
  for (uint64_t id = 1; id <= 5; ++id) queue->push(entry(id), false);
  EXPECT_FALSE(queue->empty());
  EXPECT_THAT(poll(2), ElementsAre(1, 2));
  EXPECT_THAT(poll(2), ElementsAre(3, 4));
  EXPECT_THAT(poll(0), ElementsAre());
  EXPECT_THAT(poll(2), ElementsAre(5));
  EXPECT_THAT(poll(2), ElementsAre());
  EXPECT_TRUE(queue->empty());
}

TEST_F(CompletionQueueTest, TakesSeveralEntriesThatDifferInLittle) {
  create(7);
  Completion common;
  common.qp_num = 9;
  common.opcode = IBV_WC_RECV;
  const CompletionQueue::Differing entries[] = {{1, 10}, {2, 20}, {3, 30}};
  EXPECT_TRUE(queue->push_all(common, entries));
  ibv_wc wcs[4];
  ASSERT_EQ(queue->poll(4, wcs), 3);
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(wcs[i].wr_id, i + 1);
    EXPECT_EQ(wcs[i].byte_len, 10 * (i + 1));
    EXPECT_EQ(wcs[i].qp_num, 9u);
    EXPECT_EQ(wcs[i].opcode, IBV_WC_RECV);
  }
}

TEST_F(CompletionQueueTest, SeveralEntriesAreInErrorFromTheFirstThatDoesNotFit) {
  create(3);
  const std::vector<CompletionQueue::Differing> entries = {{1, 0}, {2, 0}, {3, 0}, {4, 0}, {5, 0}};
  EXPECT_FALSE(push_all(entries));
  EXPECT_EQ(listener.overflows, 1);
  EXPECT_THAT(poll(), ElementsAre(1, 2, 3, 4));
  EXPECT_FALSE(push_all(entries));
  EXPECT_EQ(listener.overflows, 1);
}

TEST_F(CompletionQueueTest, SeveralEntriesAreOneEventToWhoIsArmed) {
  create(7);
  EXPECT_EQ(queue->arm(false), Event::kNone);
  const std::vector<CompletionQueue::Differing> entries = {{1, 0}, {2, 0}};
  push_all(entries);
  EXPECT_EQ(listener.events, 1);
  take_all();
  EXPECT_EQ(queue->arm(true), Event::kNone);
  push_all(entries);
  EXPECT_EQ(listener.events, 1) << "they are not solicited";
}

TEST_F(CompletionQueueTest, GoesRoundItsRingManyTimes) {
  create(7);
  uint64_t next = 0;
  for (uint64_t id = 0; id < 1000; ++id) {
    queue->push(entry(id), false);
    if (id % 5 != 4) continue;
    for (const uint64_t got : poll()) EXPECT_EQ(got, next++);
  }
  EXPECT_EQ(next, 1000u);
}

TEST_F(CompletionQueueTest, IsInErrorFromTheFirstEntryThatDoesNotFit) {
  create(3);
  for (uint64_t id = 1; id <= 4; ++id) queue->push(entry(id), false);
  EXPECT_EQ(listener.overflows, 0);
  queue->push(entry(5), false);
  queue->push(entry(6), false);
  EXPECT_EQ(listener.overflows, 1) << "told once";
  EXPECT_THAT(poll(2), ElementsAre(1, 2));
  queue->push(entry(7), false);
  EXPECT_THAT(poll(3), ElementsAre(3, 4)) << "nothing is added any more";
  ibv_wc wc;
  EXPECT_EQ(queue->poll(1, &wc), -1);
  EXPECT_EQ(queue->poll(1, &wc), -1);
}

// ---- events

TEST_F(CompletionQueueTest, TellsOnceOfTheNextEntryWhenArmed) {
  create(15);
  queue->push(entry(1), false);
  EXPECT_EQ(listener.events, 0);
  take_all();
  EXPECT_EQ(queue->arm(false), Event::kNone);
  queue->push(entry(2), false);
  queue->push(entry(3), false);
  EXPECT_EQ(listener.events, 1);
  take_all();
  EXPECT_EQ(queue->arm(false), Event::kNone);
  queue->push(entry(4), false);
  EXPECT_EQ(listener.events, 2);
}

TEST_F(CompletionQueueTest, OwesTheEventAtOnceWhenArmedWhileAnEntryWaits) {
  create(15);
  queue->push(entry(1), false);
  queue->push(entry(2), false);
  ibv_wc wc;
  ASSERT_EQ(queue->poll(1, &wc), 1);
  EXPECT_EQ(queue->arm(false), Event::kNow);
  queue->push(entry(3), false);
  EXPECT_EQ(listener.events, 0) << "that was the one event it was armed for";
  take_all();
  EXPECT_EQ(queue->arm(false), Event::kNone);
}

TEST_F(CompletionQueueTest, OwesItForSolicitedEntriesAndErrorsOnlyWhenArmedSo) {
  create(15);
  queue->push(entry(1), false);
  EXPECT_EQ(queue->arm(true), Event::kNone);
  take_all();
  queue->push(entry(2), true);
  EXPECT_EQ(listener.events, 1);
  queue->push(entry(3), false);
  EXPECT_EQ(queue->arm(true), Event::kNone);
  queue->push(entry(4, 1, IBV_WC_WR_FLUSH_ERR), false);
  EXPECT_EQ(listener.events, 2);
  queue->push(entry(5), true);
  queue->push(entry(6), false);
  EXPECT_EQ(queue->arm(true), Event::kNow);
  take_all();
  EXPECT_EQ(queue->arm(true), Event::kNone);
}

// perftest calls get_cq_event, req_notify_cq and then poll_cq only once for each event.
TEST_F(CompletionQueueTest, TellsOfAnEntryOnce) {
  create(15);
  EXPECT_EQ(queue->arm(false), Event::kNone);
  queue->push(entry(1), false);
  EXPECT_EQ(listener.events, 1);
  EXPECT_EQ(queue->arm(false), Event::kNone) << "the event told of the entry that waits";
  queue->push(entry(2), false);
  EXPECT_EQ(listener.events, 2);
  queue->push(entry(3), false);
  EXPECT_EQ(queue->arm(false), Event::kNow) << "the third came after that";
  EXPECT_EQ(queue->arm(false), Event::kNone);
}

TEST_F(CompletionQueueTest, OwesNoneForTheEntryThatABatchHasComeTo) {
  create(15);
  queue->push(entry(1), false);
  ASSERT_NE(queue->begin_batch(), nullptr);
  EXPECT_EQ(queue->arm(false), Event::kNone);
  queue->push(entry(2), false);
  EXPECT_EQ(listener.events, 1);
  queue->push(entry(3), false);
  EXPECT_EQ(queue->arm(false), Event::kNow);
  queue->end_batch();
}

TEST_F(CompletionQueueTest, OwesNoneForEntriesOfAQpThatIsGone) {
  create(15);
  queue->push(entry(1, 5), true);
  queue->remove_entries_of(5);
  EXPECT_EQ(queue->arm(false), Event::kNone);
  EXPECT_EQ(queue->arm(true), Event::kNone);
}

TEST_F(CompletionQueueTest, TellsOfSolicitedEntriesAndErrorsOnlyWhenArmedSo) {
  create(15);
  EXPECT_EQ(queue->arm(true), Event::kNone);
  queue->push(entry(1), false);
  EXPECT_EQ(listener.events, 0);
  queue->push(entry(2), true);
  EXPECT_EQ(listener.events, 1);
  take_all();
  EXPECT_EQ(queue->arm(true), Event::kNone);
  queue->push(entry(3, 1, IBV_WC_WR_FLUSH_ERR), false);
  EXPECT_EQ(listener.events, 2);
}

TEST_F(CompletionQueueTest, LetsTheRequestForAnyEntryOutweighTheOther) {
  create(15);
  EXPECT_EQ(queue->arm(true), Event::kNone);
  EXPECT_EQ(queue->arm(false), Event::kNone);
  queue->push(entry(1), false);
  EXPECT_EQ(listener.events, 1);
  take_all();
  EXPECT_EQ(queue->arm(false), Event::kNone);
  EXPECT_EQ(queue->arm(true), Event::kNone);
  queue->push(entry(2), false);
  EXPECT_EQ(listener.events, 2);
}

// ---- resize and removal

TEST_F(CompletionQueueTest, KeepsItsEntriesWhenResized) {
  create(7);
  for (uint64_t id = 0; id < 5; ++id) queue->push(entry(id), false);
  poll(3);
  for (uint64_t id = 5; id < 9; ++id) queue->push(entry(id), false);
  ASSERT_TRUE(queue->resize(100));
  EXPECT_EQ(queue->capacity(), 128u);
  for (uint64_t id = 9; id < 100; ++id) queue->push(entry(id), false);
  uint64_t next = 3;
  for (const uint64_t id : poll()) EXPECT_EQ(id, next++);
  EXPECT_EQ(next, 100u);
  EXPECT_EQ(listener.overflows, 0);
}

TEST_F(CompletionQueueTest, IsNotMadeSmallerThanItsEntries) {
  create(31);
  for (uint64_t id = 0; id < 10; ++id) queue->push(entry(id), false);
  const auto resized = queue->resize(9);
  ASSERT_FALSE(resized);
  EXPECT_EQ(resized.error().code, EINVAL);
  EXPECT_EQ(queue->capacity(), 32u);
  ASSERT_TRUE(queue->resize(10));
  EXPECT_EQ(queue->capacity(), 16u);
  EXPECT_EQ(poll().size(), 10u);
}

TEST_F(CompletionQueueTest, KeepsRoomForRequestsInFlightWhenItShrinks) {
  create(7);
  ASSERT_TRUE(queue->resize(1));
  EXPECT_EQ(queue->capacity(), 2u);
  for (uint64_t id = 0; id < 64; ++id) EXPECT_TRUE(queue->push(entry(id), false));
  EXPECT_EQ(poll().size(), 64u);
  EXPECT_EQ(listener.overflows, 0);
}

TEST_F(CompletionQueueTest, StaysArmedWhenResized) {
  create(7);
  EXPECT_EQ(queue->arm(false), Event::kNone);
  ASSERT_TRUE(queue->resize(31));
  queue->push(entry(1), false);
  EXPECT_EQ(listener.events, 1);
}

TEST_F(CompletionQueueTest, ForgetsTheEntriesOfAQpThatGoes) {
  create(15);
  for (uint64_t id = 0; id < 12; ++id) queue->push(entry(id, id % 3 == 0 ? 7 : 8), false);
  queue->remove_entries_of(7);
  EXPECT_THAT(poll(), ElementsAre(1, 2, 4, 5, 7, 8, 10, 11));
  queue->push(entry(20, 7), false);
  EXPECT_THAT(poll(), ElementsAre(20));
}

// ---- threads

TEST_F(CompletionQueueTest, LosesAndDoublesNothingBetweenThreads) {
#if defined(__SANITIZE_THREAD__)
  constexpr uint64_t kEach = 20'000;
#else
  constexpr uint64_t kEach = 100'000;
#endif
  constexpr uint32_t kPushers = 3;
  create(255);
  std::atomic<uint64_t> taken{0};
  std::atomic<uint64_t> pushed{0};
  std::vector<std::thread> threads;
  for (uint32_t qp = 0; qp < kPushers; ++qp) {
    threads.emplace_back([&, qp] {
      for (uint64_t id = 0; id < kEach; ++id) {
        while (pushed.load() - taken.load() > 200) std::this_thread::yield();
        ++pushed;
        queue->push(entry(id, qp), false);
      }
    });
  }
  std::thread resizer([&] {
    for (uint32_t i = 0; taken.load() < kPushers * kEach; ++i) {
      if (queue->arm(i % 2 == 0) == Event::kNow) listener.on_completion_event();
      if (i % 16 == 0) {
        EXPECT_TRUE(queue->resize(i % 32 == 0 ? 1023 : 255));
      }
      std::this_thread::yield();
    }
  });
  std::vector<uint64_t> next(kPushers);
  uint64_t wrong = 0;
  while (taken < kPushers * kEach) {
    ibv_wc wcs[16];
    const int got = queue->poll(16, wcs);
    ASSERT_GE(got, 0);
    for (int i = 0; i < got; ++i) wrong += wcs[i].wr_id != next[wcs[i].qp_num]++ ? 1 : 0;
    taken += static_cast<uint64_t>(got);
    if (got == 0) std::this_thread::yield();
  }
  for (std::thread& t : threads) t.join();
  resizer.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(listener.overflows, 0);
  EXPECT_TRUE(queue->empty());
}

// The usual loop: arm, poll once more, wait for the event. It must never miss an entry.
TEST_F(CompletionQueueTest, NeverMissesAnEntryBetweenArmingAndPolling) {
  constexpr int kEntries = 20'000;
  create(15);
  std::atomic<int> taken{0};
  std::thread pusher([&] {
    for (int i = 0; i < kEntries; ++i) {
      while (taken.load() < i) std::this_thread::yield();
      queue->push(entry(static_cast<uint64_t>(i)), false);
    }
  });
  int waits = 0;
  while (taken < kEntries) {
    ibv_wc wc;
    if (queue->poll(1, &wc) == 1) {
      ++taken;
      continue;
    }
    const int seen = listener.events;
    if (queue->arm(false) == Event::kNow) listener.on_completion_event();
    if (queue->poll(1, &wc) == 1) {
      ++taken;
      continue;
    }
    ++waits;
    while (listener.events == seen) std::this_thread::yield();
  }
  pusher.join();
  EXPECT_EQ(taken, kEntries);
}

}  // namespace
}  // namespace verbena::queues
