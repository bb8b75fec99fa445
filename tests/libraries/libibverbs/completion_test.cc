// SPDX-License-Identifier: Apache-2.0
#include <atomic>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include "libraries/libibverbs/opened_device.h"

namespace verbena::fake {
namespace {

using Completion = OpenedDevice;

TEST_F(Completion, AQueueIsMadeAsAsked) {
  int mine = 0;
  ibv_comp_channel* channel = ibv_create_comp_channel(context_);
  ASSERT_NE(channel, nullptr);
  ibv_cq* cq = ibv_create_cq(context_, 100, &mine, channel, 0);
  ASSERT_NE(cq, nullptr);
  EXPECT_EQ(cq->cq_context, &mine);
  EXPECT_EQ(cq->channel, channel);
  EXPECT_EQ(ibv_resize_cq(cq, 200), 0);
  EXPECT_EQ(cq->cqe, 200);
  EXPECT_EQ(ibv_destroy_comp_channel(channel), EBUSY);
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
  EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
}

TEST_F(Completion, AnExtendedQueueIsMadeAsAsked) {
  ibv_cq_init_attr_ex attr{};
  attr.cqe = 100;
  attr.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
  attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
  attr.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
  EXPECT_EQ(ibv_create_cq_ex(context_, &attr), &fake().extended_cq);
  EXPECT_EQ(fake().extended_cq_attr.cqe, 100u);
  EXPECT_EQ(fake().extended_cq_attr.wc_flags, uint64_t{IBV_WC_EX_WITH_COMPLETION_TIMESTAMP});
  EXPECT_EQ(fake().extended_cq_attr.flags, uint32_t{IBV_CREATE_CQ_ATTR_SINGLE_THREADED});
  fake().refuse_with = EOPNOTSUPP;
  errno = 0;
  EXPECT_EQ(ibv_create_cq_ex(context_, &attr), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

TEST_F(Completion, AQueueIsModerated) {
  ibv_cq_init_attr_ex wanted{};
  wanted.cqe = 1;
  ibv_cq* cq = ibv_cq_ex_to_cq(ibv_create_cq_ex(context_, &wanted));
  ibv_modify_cq_attr attr{};
  attr.attr_mask = IBV_CQ_ATTR_MODERATE;
  attr.moderate = {.cq_count = 7, .cq_period = 30};
  EXPECT_EQ(ibv_modify_cq(cq, &attr), 0);
  EXPECT_EQ(fake().moderation.cq_count, 7);
  EXPECT_EQ(fake().moderation.cq_period, 30);
  fake().refuse_with = EINVAL;
  EXPECT_EQ(ibv_modify_cq(cq, &attr), EINVAL);
}

TEST_F(Completion, TheClockOfTimestampsCanBeRead) {
  fake().raw_clock = {.tv_sec = 3, .tv_nsec = 4};
  ibv_values_ex values{};
  values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
  EXPECT_EQ(ibv_query_rt_values_ex(context_, &values), 0);
  EXPECT_EQ(values.raw_clock.tv_sec, 3);
  EXPECT_EQ(values.raw_clock.tv_nsec, 4);
  fake().refuse_with = EINVAL;
  EXPECT_EQ(ibv_query_rt_values_ex(context_, &values), EINVAL);
}

TEST_F(Completion, RefusalsCarryTheProvidersErrno) {
  errno = 0;
  EXPECT_EQ(ibv_create_cq(context_, 0, nullptr, nullptr, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
  fake().refuse_with = EMFILE;
  EXPECT_EQ(ibv_create_comp_channel(context_), nullptr);
  EXPECT_EQ(errno, EMFILE);
  EXPECT_EQ(ibv_create_comp_channel(nullptr), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(Completion, EventsNameTheQueueAndItsContext) {
  int mine = 0;
  ibv_comp_channel* channel = ibv_create_comp_channel(context_);
  ibv_cq* cq = ibv_create_cq(context_, 1, &mine, channel, 0);
  fake().raise_cq_event(cq);
  ibv_cq* from = nullptr;
  void* whose = nullptr;
  ASSERT_EQ(ibv_get_cq_event(channel, &from, &whose), 0);
  EXPECT_EQ(from, cq);
  EXPECT_EQ(whose, &mine);
  ibv_ack_cq_events(cq, 3);
  EXPECT_EQ(static_cast<FakeCq*>(cq)->acked, 3U);

  ASSERT_EQ(fcntl(channel->fd, F_SETFL, O_NONBLOCK), 0);
  errno = 0;
  EXPECT_EQ(ibv_get_cq_event(channel, &from, &whose), -1);
  EXPECT_EQ(errno, EAGAIN);
  ibv_destroy_cq(cq);
  ibv_destroy_comp_channel(channel);
}

// rping ends its completion thread by cancelling it.
TEST_F(Completion, AThreadThatWaitsForAnEventCanBeCancelled) {
  struct Waiter {
    ibv_comp_channel* channel;
    std::atomic<bool> unwound{false};
    static void* run(void* self) {
      auto* waiter = static_cast<Waiter*>(self);
      struct Mark {
        Waiter* waiter;
        ~Mark() { waiter->unwound = true; }
      } mark{waiter};
      ibv_cq* cq = nullptr;
      void* cq_context = nullptr;
      ibv_get_cq_event(waiter->channel, &cq, &cq_context);
      return nullptr;
    }
  } waiter{ibv_create_comp_channel(context_)};
  pthread_t thread;
  ASSERT_EQ(pthread_create(&thread, nullptr, Waiter::run, &waiter), 0);
  ASSERT_EQ(pthread_cancel(thread), 0);
  void* result = nullptr;
  ASSERT_EQ(pthread_join(thread, &result), 0);
  EXPECT_EQ(result, PTHREAD_CANCELED);
  EXPECT_TRUE(waiter.unwound);
  ibv_destroy_comp_channel(waiter.channel);
}

}  // namespace
}  // namespace verbena::fake
