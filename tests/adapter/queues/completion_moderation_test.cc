// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "adapter/queues/completion_queue.h"

namespace verbena::queues {
namespace {

class Listener : public CompletionListener {
 public:
  void on_completion_event() override { ++events; }
  void on_overflow() override {}
  void on_event_held() override { ++held; }

  int events = 0;
  int held = 0;
};

using Event = CompletionQueue::Event;

class CompletionModeration : public testing::Test {
 protected:
  CompletionModeration() { queue->moderate(4); }
  void push(int count, bool solicited = false, ibv_wc_status status = IBV_WC_SUCCESS) {
    ibv_wc wc{};
    wc.status = status;
    for (int i = 0; i < count; ++i) queue->push(wc, solicited);
  }
  void take_all() {
    ibv_wc wc[100];
    queue->poll(100, wc);
  }

  Listener listener;
  std::unique_ptr<CompletionQueue> queue = *CompletionQueue::create(100, &listener);
};

TEST_F(CompletionModeration, HoldsTheEventBackUntilThereAreEnough) {
  EXPECT_EQ(queue->arm(false), Event::kNone);
  push(1);
  EXPECT_EQ(listener.held, 1);
  push(2);
  EXPECT_EQ(listener.held, 1) << "told at the first only";
  EXPECT_EQ(listener.events, 0);
  push(1);
  EXPECT_EQ(listener.events, 1);
  push(10);
  EXPECT_EQ(listener.events, 1) << "it was armed once";
  EXPECT_EQ(listener.held, 1);
}

TEST_F(CompletionModeration, ReleasesWhatItHolds) {
  queue->release_event();
  EXPECT_EQ(listener.events, 0) << "nothing is held";
  EXPECT_EQ(queue->arm(false), Event::kNone);
  queue->release_event();
  EXPECT_EQ(listener.events, 0) << "nothing has come";
  push(2);
  queue->release_event();
  EXPECT_EQ(listener.events, 1);
  queue->release_event();
  EXPECT_EQ(listener.events, 1);
  push(10);
  EXPECT_EQ(listener.events, 1) << "disarmed";
}

TEST_F(CompletionModeration, CountsAnewForEachEvent) {
  for (int round = 1; round <= 3; ++round) {
    EXPECT_EQ(queue->arm(false), Event::kNone);
    push(3);
    EXPECT_EQ(listener.events, round - 1);
    push(1);
    EXPECT_EQ(listener.events, round);
    take_all();
  }
}

TEST_F(CompletionModeration, CountsOnlyWhatCounts) {
  push(3);
  EXPECT_EQ(queue->arm(true), Event::kNone);
  push(10);
  EXPECT_EQ(listener.held, 0);
  push(3, true);
  EXPECT_EQ(listener.events, 0);
  push(1, true);
  EXPECT_EQ(listener.events, 1);
}

// Entries that wait when the queue is armed count as if they had come after arming.
TEST_F(CompletionModeration, HoldsBackWhatWaitsWhenItIsArmed) {
  push(2);
  EXPECT_EQ(queue->arm(false), Event::kHeld);
  EXPECT_EQ(queue->arm(false), Event::kNone) << "held back already";
  push(1);
  EXPECT_EQ(listener.events, 0);
  push(1);
  EXPECT_EQ(listener.events, 1);
  push(4);
  EXPECT_EQ(queue->arm(false), Event::kNow) << "four have come since";
  EXPECT_EQ(listener.held, 0) << "arm() already reports the event";
}

TEST_F(CompletionModeration, DoesNotKeepErrorsWaiting) {
  EXPECT_EQ(queue->arm(true), Event::kNone);
  push(1, true);
  push(1, false, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(listener.events, 1);
}

TEST_F(CompletionModeration, EndsWithWhatItHeld) {
  EXPECT_EQ(queue->arm(false), Event::kNone);
  push(2);
  queue->moderate(0);
  EXPECT_EQ(listener.events, 1);
  EXPECT_EQ(queue->arm(false), Event::kNone);
  push(1);
  EXPECT_EQ(listener.events, 2);
  EXPECT_EQ(listener.held, 1);
}

}  // namespace
}  // namespace verbena::queues
