// SPDX-License-Identifier: Apache-2.0
// Polling a completion queue entry by entry, and the other features of extended queues.
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "adapter/queues/completion_queue.h"
#include "adapter/queues/completion_support.h"
#include "base/device_clock.h"

namespace verbena::queues {
namespace {

using testing::ElementsAre;

class CompletionBatch : public testing::Test {
 protected:
  explicit CompletionBatch(const CompletionQueue::Options& options = {}) { create(7, options); }
  void create(uint32_t entries, const CompletionQueue::Options& options) {
    queue = *CompletionQueue::create(entries, &listener, options);
  }
  void push(std::initializer_list<uint64_t> ids, uint32_t qp = 1) {
    for (const uint64_t id : ids) queue->push(entry(id, qp), false);
  }
  // Returns the IDs of a batch of at most `most` entries.
  std::vector<uint64_t> batch(size_t most = 1000) {
    std::vector<uint64_t> ids;
    const Completion* at = queue->begin_batch();
    if (at == nullptr) return ids;
    for (; at != nullptr; at = queue->next_in_batch()) {
      ids.push_back(at->wr_id);
      if (ids.size() == most) break;
    }
    queue->end_batch();
    return ids;
  }
  std::vector<uint64_t> poll() {
    ibv_wc wcs[16];
    const int got = queue->poll(16, wcs);
    std::vector<uint64_t> ids;
    for (int i = 0; i < got; ++i) ids.push_back(wcs[i].wr_id);
    return ids;
  }

  Listener listener;
  std::unique_ptr<CompletionQueue> queue;
};

TEST_F(CompletionBatch, DoesNotBeginWithoutAnEntry) {
  EXPECT_EQ(queue->begin_batch(), nullptr);
  push({1});
  EXPECT_THAT(batch(), ElementsAre(1)) << "and the queue was left unlocked";
  EXPECT_EQ(queue->begin_batch(), nullptr);
}

TEST_F(CompletionBatch, TakesEntriesInOrderAndNoMoreThanItLookedAt) {
  push({1, 2, 3, 4});
  EXPECT_THAT(batch(2), ElementsAre(1, 2));
  EXPECT_THAT(batch(1), ElementsAre(3));
  EXPECT_THAT(poll(), ElementsAre(4));
}

TEST_F(CompletionBatch, FindsWhatComesWhileItIsOpen) {
  push({1});
  ASSERT_NE(queue->begin_batch(), nullptr);
  push({2});
  const Completion* next = queue->next_in_batch();
  ASSERT_NE(next, nullptr);
  EXPECT_EQ(next->wr_id, 2u);
  EXPECT_EQ(queue->next_in_batch(), nullptr);
  push({3});
  next = queue->next_in_batch();
  ASSERT_NE(next, nullptr);
  EXPECT_EQ(next->wr_id, 3u);
  queue->end_batch();
  EXPECT_TRUE(queue->empty());
}

TEST_F(CompletionBatch, LeavesWhatCameAfterItsEnd) {
  push({1});
  ASSERT_NE(queue->begin_batch(), nullptr);
  EXPECT_EQ(queue->next_in_batch(), nullptr);
  push({2});
  queue->end_batch();
  EXPECT_THAT(batch(), ElementsAre(2));
}

TEST_F(CompletionBatch, KeepsThePlaceOfTheEntryThatIsLookedAt) {
  push({1, 2, 3, 4, 5, 6, 7, 8});
  const Completion* at = queue->begin_batch();
  EXPECT_EQ(at->wr_id, 1u);
  push({9});
  EXPECT_EQ(listener.overflows, 1) << "eight are there, and the first is one of them";
  EXPECT_EQ(at->wr_id, 1u);
  queue->end_batch();
}

TEST_F(CompletionBatch, GivesPlacesBackOneByOne) {
  push({1, 2, 3, 4, 5, 6, 7, 8});
  ASSERT_NE(queue->begin_batch(), nullptr);
  queue->next_in_batch();
  queue->next_in_batch();
  push({9, 10});
  EXPECT_EQ(listener.overflows, 0);
  queue->end_batch();
  EXPECT_THAT(batch(), ElementsAre(4, 5, 6, 7, 8, 9, 10));
}

TEST_F(CompletionBatch, EntriesOfAQueuePairThatGoesMeanwhileAreNotSeen) {
  push({1, 2}, 7);
  push({3}, 8);
  push({4}, 7);
  push({5}, 8);
  ASSERT_EQ(queue->begin_batch()->wr_id, 1u);
  queue->remove_entries_of(7);  // called by the thread that has the batch open
  const Completion* next = queue->next_in_batch();
  ASSERT_NE(next, nullptr);
  EXPECT_EQ(next->wr_id, 3u);
  queue->end_batch();
  EXPECT_THAT(poll(), ElementsAre(5));
  EXPECT_THAT(poll(), ElementsAre());
}

TEST_F(CompletionBatch, ABatchOfNothingButSuchEntriesDoesNotBegin) {
  push({1}, 8);
  push({2, 3}, 7);
  ASSERT_NE(queue->begin_batch(), nullptr);
  queue->remove_entries_of(7);
  queue->end_batch();
  EXPECT_EQ(queue->begin_batch(), nullptr);
  EXPECT_TRUE(queue->empty());
  push({4}, 7);
  EXPECT_THAT(batch(), ElementsAre(4)) << "the number may be used again";
}

TEST_F(CompletionBatch, ResizingGivesUpWhenItStaysOpen) {
  push({1, 2});
  ASSERT_NE(queue->begin_batch(), nullptr);
  const auto resized = queue->resize(100);
  ASSERT_FALSE(resized);
  EXPECT_EQ(resized.error().code, EBUSY);
  queue->end_batch();
  ASSERT_TRUE(queue->resize(100));
  EXPECT_THAT(batch(), ElementsAre(2));
}

TEST_F(CompletionBatch, ASecondOneWaitsForTheFirst) {
  push({1, 2, 3});
  ASSERT_NE(queue->begin_batch(), nullptr);
  std::atomic<bool> first_ended{false};
  std::thread other([&] {
    const Completion* at = queue->begin_batch();
    EXPECT_TRUE(first_ended);
    ASSERT_NE(at, nullptr);
    EXPECT_EQ(at->wr_id, 3u);
    queue->end_batch();
  });
  queue->next_in_batch();
  first_ended = true;
  queue->end_batch();
  other.join();
}

TEST_F(CompletionBatch, LosesAndDoublesNothingBetweenThreads) {
#if defined(__SANITIZE_THREAD__)
  constexpr uint64_t kEntries = 20'000;
#else
  constexpr uint64_t kEntries = 50'000;
#endif
  constexpr uint32_t kPollers = 2;
  create(63, {});
  std::atomic<uint64_t> taken{0};
  std::atomic<uint64_t> sum{0};
  std::vector<std::thread> pollers;
  for (uint32_t poller = 0; poller < kPollers; ++poller) {
    pollers.emplace_back([&, poller] {
      while (taken < kEntries) {
        const size_t most = poller == 0 ? 3 : 100;
        const std::vector<uint64_t> ids = batch(most);
        for (size_t i = 1; i < ids.size(); ++i) EXPECT_EQ(ids[i], ids[i - 1] + 1);
        for (const uint64_t id : ids) sum += id;
        taken += ids.size();
        if (ids.empty()) std::this_thread::yield();
      }
    });
  }
  for (uint64_t id = 0; id < kEntries; ++id) {
    while (id - taken.load() > 50) std::this_thread::yield();
    queue->push(entry(id), false);
  }
  for (std::thread& poller : pollers) poller.join();
  EXPECT_EQ(taken, kEntries);
  EXPECT_EQ(sum, kEntries * (kEntries - 1) / 2);
  EXPECT_EQ(listener.overflows, 0);
}

// ---- creation attributes

class SingleThreadedBatch : public CompletionBatch {
 protected:
  SingleThreadedBatch() : CompletionBatch({.single_threaded = true}) {}
};

TEST_F(SingleThreadedBatch, IsLikeAnyOther) {
  push({1, 2, 3}, 7);
  push({4}, 8);
  EXPECT_THAT(batch(1), ElementsAre(1));
  ASSERT_NE(queue->begin_batch(), nullptr);
  queue->remove_entries_of(7);
  EXPECT_FALSE(queue->resize(31));
  queue->end_batch();
  ASSERT_TRUE(queue->resize(31));
  EXPECT_EQ(queue->capacity(), 32u);
  EXPECT_THAT(poll(), ElementsAre(4));
}

TEST_F(SingleThreadedBatch, StillHasPushersInOtherThreads) {
  constexpr uint64_t kEntries = 50'000;
  create(63, {.single_threaded = true});
  std::atomic<uint64_t> taken{0};
  std::thread pusher([&] {
    for (uint64_t id = 0; id < kEntries; ++id) {
      while (id - taken.load() > 50) std::this_thread::yield();
      queue->push(entry(id), false);
    }
  });
  while (taken < kEntries) {
    for (const uint64_t id : batch(5)) EXPECT_EQ(id, taken++);
  }
  pusher.join();
}

TEST_F(CompletionBatch, IgnoredOverrunsLoseWhatDoesNotFitAndNothingElse) {
  create(3, {.ignore_overrun = true});
  EXPECT_EQ(queue->arm(false), CompletionQueue::Event::kNone);
  push({1, 2, 3, 4, 5});
  EXPECT_EQ(listener.overflows, 0);
  EXPECT_FALSE(queue->in_error());
  EXPECT_THAT(batch(), ElementsAre(1, 2, 3, 4));
  push({6});
  EXPECT_THAT(poll(), ElementsAre(6));
  EXPECT_THAT(poll(), ElementsAre());
}

TEST_F(CompletionBatch, PushTellsWhetherTheEntryIsLost) {
  create(1, {});
  EXPECT_TRUE(queue->push(entry(1), false));
  EXPECT_TRUE(queue->push(entry(2), false));
  EXPECT_FALSE(queue->push(entry(3), false));
  poll();
  EXPECT_FALSE(queue->push(entry(4), false)) << "the queue stays in error";
}

TEST_F(CompletionBatch, TimestampsAreOfTheClocksAskedFor) {
  for (const bool device : {false, true}) {
    for (const bool wall : {false, true}) {
      create(7, {.device_clock = device, .wall_clock = wall});
      const uint64_t device_before = device_clock();
      const uint64_t wall_before = wall_clock();
      push({1, 2});
      const uint64_t device_after = device_clock();
      const uint64_t wall_after = wall_clock();
      const Completion first = *queue->begin_batch();
      const Completion second = *queue->next_in_batch();
      queue->end_batch();
      if (device) {
        EXPECT_GE(first.timestamp, device_before);
        EXPECT_LE(first.timestamp, second.timestamp);
        EXPECT_LE(second.timestamp, device_after);
      } else {
        EXPECT_EQ(first.timestamp, 0u);
      }
      if (wall) {
        EXPECT_GE(first.wallclock, wall_before);
        EXPECT_LE(second.wallclock, wall_after);
      } else {
        EXPECT_EQ(first.wallclock, 0u);
      }
    }
  }
}

TEST_F(CompletionBatch, EveryFieldComesThrough) {
  ibv_wc wc{};
  wc.wr_id = 0x0102030405060708;
  wc.status = IBV_WC_TM_RNDV_INCOMPLETE;
  wc.opcode = IBV_WC_DRIVER3;
  wc.vendor_err = 0x11121314;
  wc.byte_len = 0x21222324;
  wc.imm_data = 0x31323334;
  wc.qp_num = 0x414243;
  wc.src_qp = 0x515253;
  wc.wc_flags = IBV_WC_GRH | IBV_WC_WITH_IMM | IBV_WC_TM_DATA_VALID;
  wc.pkey_index = 0x6162;
  wc.sl = 0x71;
  Completion pushed(wc);
  pushed.tag = 0x8182838485868788;
  pushed.tag_private = 0x91929394;
  pushed.cvlan = 0xa1a2;
  queue->push(pushed, false);
  const Completion got = *queue->begin_batch();
  queue->end_batch();
  EXPECT_EQ(got.tag, pushed.tag);
  EXPECT_EQ(got.tag_private, pushed.tag_private);
  EXPECT_EQ(got.cvlan, pushed.cvlan);

  queue->push(got, false);
  ibv_wc polled;
  std::memset(&polled, 0xff, sizeof polled);
  ASSERT_EQ(queue->poll(1, &polled), 1);
  EXPECT_EQ(polled.wr_id, wc.wr_id);
  EXPECT_EQ(polled.status, wc.status);
  EXPECT_EQ(polled.opcode, wc.opcode);
  EXPECT_EQ(polled.vendor_err, wc.vendor_err);
  EXPECT_EQ(polled.byte_len, wc.byte_len);
  EXPECT_EQ(polled.imm_data, wc.imm_data);
  EXPECT_EQ(polled.qp_num, wc.qp_num);
  EXPECT_EQ(polled.src_qp, wc.src_qp);
  EXPECT_EQ(polled.wc_flags, wc.wc_flags);
  EXPECT_EQ(polled.pkey_index, wc.pkey_index);
  EXPECT_EQ(polled.sl, wc.sl);
  EXPECT_EQ(polled.slid, 0);
  EXPECT_EQ(polled.dlid_path_bits, 0);
}

}  // namespace
}  // namespace verbena::queues
