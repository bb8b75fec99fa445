// SPDX-License-Identifier: Apache-2.0
#include "adapter/queues/shared_receive_queue.h"

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace verbena::queues {
namespace {

struct Limit : LimitListener {
  void on_limit_reached() override { ++events; }
  int events = 0;
};

class SharedReceiveQueueTest : public testing::Test {
 protected:
  static constexpr uint32_t kRequests = 8;
  static constexpr uint32_t kSges = 3;

  static std::unique_ptr<SharedReceiveQueue> make(Limit& limit, uint32_t requests = kRequests) {
    return *SharedReceiveQueue::create({.requests = requests, .sges = kSges, .pd = 5, .listener = &limit});
  }
  // Posts a request whose scatter list holds its number. False if the ring is full.
  static bool post(SharedReceiveQueue& queue, uint64_t wr_id) {
    const std::lock_guard guard(queue.lock());
    RecvWqe* wqe = queue.ring().reserve();
    if (wqe == nullptr) return false;
    wqe->wr_id = wr_id;
    wqe->num_sge = static_cast<uint32_t>(wr_id % (kSges + 1));
    for (uint32_t i = 0; i < wqe->num_sge; ++i) wqe->sge_space()[i] = {wr_id, i, ~i};
    queue.ring().publish();
    return true;
  }
  bool post(uint64_t wr_id) { return post(*queue, wr_id); }
  static bool is_request(const HeldReceive& held, uint64_t wr_id) {
    if (held.wqe.wr_id != wr_id || held.wqe.num_sge != wr_id % (kSges + 1)) return false;
    for (uint32_t i = 0; i < held.wqe.num_sge; ++i) {
      const ibv_sge& sge = held.wqe.sges()[i];
      if (sge.addr != wr_id || sge.length != i || sge.lkey != ~i) return false;
    }
    return true;
  }
  void expect_taken(uint64_t wr_id) {
    HeldReceive held;
    ASSERT_TRUE(queue->take(held));
    EXPECT_TRUE(is_request(held, wr_id)) << held.wqe.wr_id << " taken, not " << wr_id;
  }
  int resize(uint32_t requests) {
    auto ring = queue->make_ring(requests);
    if (!ring) return ring.error().code;
    const std::lock_guard guard(queue->lock());
    const auto exchanged = queue->exchange(*ring);
    return exchanged ? 0 : exchanged.error().code;
  }

  Limit limit;
  std::unique_ptr<SharedReceiveQueue> queue = make(limit);
};

TEST_F(SharedReceiveQueueTest, GivesRequestsInTheOrderOfPostingWithTheirLists) {
  for (uint64_t id = 1; id <= 5; ++id) ASSERT_TRUE(post(id));
  for (uint64_t id = 1; id <= 5; ++id) expect_taken(id);
  HeldReceive held;
  EXPECT_FALSE(queue->take(held));
}

TEST_F(SharedReceiveQueueTest, HasRoomAgainAsSoonAsARequestIsTaken) {
  for (uint64_t id = 0; id < kRequests; ++id) ASSERT_TRUE(post(id));
  EXPECT_FALSE(post(99));
  expect_taken(0);
  EXPECT_TRUE(post(99));
}

TEST_F(SharedReceiveQueueTest, LeavesATakenRequestAloneWhenItsPlaceIsUsedAgain) {
  ASSERT_TRUE(post(3));
  HeldReceive held;
  ASSERT_TRUE(queue->take(held));
  for (uint64_t id = 10; id < 10 + kRequests; ++id) ASSERT_TRUE(post(id));
  EXPECT_TRUE(is_request(held, 3));
}

// ---- the SRQ limit

TEST_F(SharedReceiveQueueTest, TellsWhenFewerThanTheLimitAreLeft) {
  for (uint64_t id = 0; id < 4; ++id) post(id);
  queue->arm(3);
  expect_taken(0);
  EXPECT_EQ(limit.events, 0);
  EXPECT_EQ(queue->limit(), 3u);
  expect_taken(1);
  EXPECT_EQ(limit.events, 1);
}

TEST_F(SharedReceiveQueueTest, TellsOnceAndIsThenUnarmed) {
  for (uint64_t id = 0; id < 4; ++id) post(id);
  queue->arm(4);
  for (uint64_t id = 0; id < 4; ++id) expect_taken(id);
  EXPECT_EQ(limit.events, 1);
  EXPECT_EQ(queue->limit(), 0u);
  for (uint64_t id = 0; id < 4; ++id) post(id);
  queue->arm(4);
  expect_taken(0);
  EXPECT_EQ(limit.events, 2);
}

TEST_F(SharedReceiveQueueTest, TellsAtOnceWhenArmedWithFewerThere) {
  post(1);
  queue->arm(2);
  EXPECT_EQ(limit.events, 1);
  EXPECT_EQ(queue->limit(), 0u);
}

TEST_F(SharedReceiveQueueTest, SaysNothingWhenTheLimitIsTakenBack) {
  for (uint64_t id = 0; id < 4; ++id) post(id);
  queue->arm(4);
  queue->arm(0);
  for (uint64_t id = 0; id < 4; ++id) expect_taken(id);
  EXPECT_EQ(limit.events, 0);
}

// ---- resizing

TEST_F(SharedReceiveQueueTest, KeepsItsRequestsWhenItGrows) {
  for (uint64_t id = 0; id < 6; ++id) post(id);
  for (uint64_t id = 0; id < 3; ++id) expect_taken(id);
  ASSERT_EQ(resize(32), 0);
  EXPECT_EQ(queue->capacity(), 32u);
  for (uint64_t id = 6; id < 6 + 29; ++id) ASSERT_TRUE(post(id));
  EXPECT_FALSE(post(99));
  for (uint64_t id = 3; id < 6 + 29; ++id) expect_taken(id);
}

TEST_F(SharedReceiveQueueTest, ShrinksToWhatIsInItAndNotBelow) {
  for (uint64_t id = 0; id < 4; ++id) post(id);
  EXPECT_EQ(resize(2), EINVAL);
  EXPECT_EQ(queue->capacity(), kRequests);
  EXPECT_EQ(resize(4), 0);
  EXPECT_EQ(queue->capacity(), 4u);
  EXPECT_FALSE(post(99));
  for (uint64_t id = 0; id < 4; ++id) expect_taken(id);
}

TEST_F(SharedReceiveQueueTest, StaysArmedWhenItIsResized) {
  for (uint64_t id = 0; id < 4; ++id) post(id);
  queue->arm(4);
  ASSERT_EQ(resize(16), 0);
  EXPECT_EQ(limit.events, 0);
  expect_taken(0);
  EXPECT_EQ(limit.events, 1);
}

// ---- threads

TEST_F(SharedReceiveQueueTest, GivesEachOnceWhenManyThreadsPost) {
  queue = make(limit, 256);
  constexpr int kThreads = 3;
  constexpr uint64_t kEach = 5'000;
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([this, t] {
      for (uint64_t i = 0; i < kEach; ++i) {
        while (!post(t << 32 | i)) std::this_thread::yield();
      }
    });
  }
  uint64_t next[kThreads] = {};
  bool right = true;
  for (uint64_t taken = 0; taken < kThreads * kEach;) {
    HeldReceive held;
    if (!queue->take(held)) {
      std::this_thread::yield();
      continue;
    }
    ++taken;
    const uint64_t t = held.wqe.wr_id >> 32;
    right = right && t < kThreads && is_request(held, t << 32 | next[t]);
    if (t < kThreads) ++next[t];
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(right);
  HeldReceive held;
  EXPECT_FALSE(queue->take(held));
}

TEST_F(SharedReceiveQueueTest, MayBeAskedWhileItIsResized) {
  std::atomic<bool> done{false};
  std::thread asker([&] {
    while (!done) {
      const uint32_t capacity = queue->capacity();
      ASSERT_TRUE(capacity == 8 || capacity == 16) << capacity;
      ASSERT_EQ(queue->limit(), 0u);
    }
  });
  for (int i = 0; i < 500; ++i) ASSERT_EQ(resize(i % 2 == 0 ? 16 : 8), 0);
  done = true;
  asker.join();
}

// ---- numbers

TEST(SharedReceiveQueueTable, FindsWhatWasAddedAndNothingElse) {
  SharedReceiveQueueTable table(3);
  EXPECT_EQ(table.find(3 << SharedReceiveQueueTable::kIndexBits), nullptr) << "nothing is there yet";
  const uint32_t number = *table.reserve();
  EXPECT_EQ(number >> SharedReceiveQueueTable::kIndexBits, 3u);
  EXPECT_LE(number, 0xffffffu);
  EXPECT_EQ(table.find(number), nullptr) << "reserved, not there";
  auto queue = *SharedReceiveQueue::create({.requests = 1, .number = number, .xrc_domain = 1});
  table.add(*queue);
  EXPECT_EQ(table.find(number), queue.get());
  EXPECT_EQ(table.find(number + 1), nullptr);
  EXPECT_EQ(table.find(number ^ 1u << SharedReceiveQueueTable::kIndexBits), nullptr) << "another slot's";
  EXPECT_EQ(table.find(number | 1u << 24), nullptr) << "numbers have 24 bits";
  EXPECT_EQ(table.find(UINT32_MAX), nullptr);
  table.remove(number);
  EXPECT_EQ(table.find(number), nullptr);
}

TEST(SharedReceiveQueueTable, GivesNoNumberAgainSoon) {
  SharedReceiveQueueTable table(1);
  const uint32_t first = *table.reserve();
  table.remove(first);
  for (int i = 0; i < 1000; ++i) {
    const uint32_t number = *table.reserve();
    ASSERT_NE(number, first);
    table.remove(number);
  }
}

TEST(SharedReceiveQueueTable, GivesAllItsNumbersAndNoneTwiceAndNeverNought) {
  SharedReceiveQueueTable table(0);
  std::vector<bool> seen(SharedReceiveQueueTable::kMax, false);
  uint32_t count = 0;
  for (auto number = table.reserve(); number; number = table.reserve(), ++count) {
    ASSERT_NE(*number, 0u);
    ASSERT_FALSE(seen[*number]);
    seen[*number] = true;
  }
  EXPECT_EQ(count, SharedReceiveQueueTable::kMax - 1);
  EXPECT_EQ(table.reserve().error().code, ENOMEM);
  table.remove(77);
  EXPECT_EQ(*table.reserve(), 77u);
}

}  // namespace
}  // namespace verbena::queues
