// SPDX-License-Identifier: Apache-2.0
#include "adapter/queues/work_queue.h"

#include <thread>

#include <gtest/gtest.h>

namespace verbena::queues {
namespace {

TEST(WorkQueue, HoldsWhatWasAskedForRoundedUp) {
  for (const auto& [asked, got] : {std::pair{0u, 0u}, {1u, 1u}, {5u, 8u}, {64u, 64u}}) {
    RecvQueue queue = *RecvQueue::create(asked, 0);
    EXPECT_EQ(queue.capacity(), got);
    for (uint32_t i = 0; i < got; ++i) {
      ASSERT_NE(queue.reserve(), nullptr);
      queue.publish();
    }
    EXPECT_EQ(queue.reserve(), nullptr);
  }
}

TEST(WorkQueue, ReservesAheadAndPublishesTogether) {
  RecvQueue queue = *RecvQueue::create(4, 0);
  for (uint32_t i = 0; i < 4; ++i) {
    RecvWqe* wqe = queue.reserve(i);
    ASSERT_NE(wqe, nullptr);
    wqe->wr_id = i;
  }
  EXPECT_EQ(queue.reserve(4), nullptr);
  EXPECT_TRUE(queue.empty()) << "nothing is seen before it is published";
  queue.publish(4);
  for (uint64_t i = 0; i < 4; ++i) {
    ASSERT_FALSE(queue.empty());
    EXPECT_EQ(queue.at(queue.consumed()).wr_id, i);
    queue.consume();
  }
  EXPECT_TRUE(queue.empty());
}

TEST(WorkQueue, KeepsListsAndInlineDataApart) {
  SendQueue queue = *SendQueue::create(3, kMaxInline);
  for (uint32_t i = 0; i < 4; ++i) {
    SendWqe* wqe = queue.reserve();
    ASSERT_NE(wqe, nullptr);
    std::memset(wqe->inline_space(), static_cast<int>(i), kMaxInline);
    wqe->wr_id = i;
    queue.publish();
  }
  for (uint32_t i = 0; i < 4; ++i) {
    const SendWqe& wqe = queue.at(i);
    EXPECT_EQ(wqe.wr_id, i);
    EXPECT_EQ(wqe.inline_data()[0], std::byte(i));
    EXPECT_EQ(wqe.inline_data()[kMaxInline - 1], std::byte(i));
  }
}

TEST(WorkQueue, LetsTheConsumerLookAtEverythingPosted) {
  RecvQueue queue = *RecvQueue::create(8, 0);
  for (uint32_t round = 0; round < 100; ++round) {
    for (uint32_t i = 0; i < 5; ++i) {
      queue.reserve()->wr_id = round * 5 + i;
      queue.publish();
    }
    for (uint32_t i = queue.consumed(); i != queue.posted(); ++i) EXPECT_EQ(queue.at(i).wr_id, i);
    for (uint32_t i = 0; i < 5; ++i) queue.consume();
  }
}

TEST(WorkQueue, ForgetsEverythingWhenCleared) {
  RecvQueue queue = *RecvQueue::create(2, 0);
  queue.publish(2);
  EXPECT_EQ(queue.reserve(), nullptr);
  queue.clear();
  EXPECT_TRUE(queue.empty());
  EXPECT_NE(queue.reserve(1), nullptr);
}

TEST(WorkQueue, PassesRequestsFromOneThreadToAnother) {
#if defined(__SANITIZE_THREAD__)
  constexpr uint64_t kRequests = 50'000;
#else
  constexpr uint64_t kRequests = 500'000;
#endif
  RecvQueue queue = *RecvQueue::create(16, sizeof(ibv_sge));
  std::thread poster([&] {
    for (uint64_t id = 0; id < kRequests;) {
      RecvWqe* wqe = queue.reserve();
      if (wqe == nullptr) {
        std::this_thread::yield();
        continue;
      }
      wqe->wr_id = id++;
      wqe->num_sge = 1;
      wqe->sge_space()[0] = {wqe->wr_id * 3, 1, 1};
      queue.publish();
    }
  });
  uint64_t wrong = 0;
  for (uint64_t id = 0; id < kRequests;) {
    if (queue.empty()) {
      std::this_thread::yield();
      continue;
    }
    const RecvWqe& wqe = queue.at(queue.consumed());
    wrong += wqe.wr_id != id || wqe.sges()[0].addr != id * 3 ? 1 : 0;
    queue.consume();
    ++id;
  }
  poster.join();
  EXPECT_EQ(wrong, 0u);
}

}  // namespace
}  // namespace verbena::queues
