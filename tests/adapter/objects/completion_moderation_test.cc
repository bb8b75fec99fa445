// SPDX-License-Identifier: Apache-2.0
// ibv_modify_cq(): events that wait for several completions.
#include "adapter/objects/support/endpoint.h"
#include "adapter/objects/support/events.h"
#include "base/time.h"

namespace verbena::adapter::testing {
namespace {

using std::chrono::microseconds;

constexpr uint16_t kPeriod = 50'000;  // microseconds

int moderate(ibv_cq* cq, uint16_t count, uint16_t period) {
  ibv_modify_cq_attr attr{};
  attr.attr_mask = IBV_CQ_ATTR_MODERATE;
  attr.moderate = {.cq_count = count, .cq_period = period};
  return ibv_modify_cq(cq, &attr);
}

class ModeratedQueue : public ::testing::Test {
 protected:
  Pair pair{Options{}, Options{.with_channel = true}};
  Endpoint& a = pair.a;
  Endpoint& b = pair.b;

  void send(uint64_t count) {
    const ibv_sge piece = a.piece(0, 8);
    for (uint64_t i = 0; i < count; ++i) {
      ASSERT_EQ(b.post_receive(i, b.piece(0, 8)), 0);
      ASSERT_EQ(a.post_send(send_request(i), {&piece, 1}), 0);
    }
  }
  // Returns the time until the event of `count` completions.
  Duration event_of(uint64_t count) {
    EXPECT_EQ(ibv_req_notify_cq(b.cq.get(), 0), 0);
    const TimePoint begin = MonotonicClock::now();
    send(count);
    EXPECT_TRUE(readable(b.channel->fd, kPatienceMs)) << "no event within ten seconds";
    const Duration took = MonotonicClock::now() - begin;
    EXPECT_EQ(get_event(b), 0);
    EXPECT_FALSE(readable(b.channel->fd)) << "one event for all of them";
    return took;
  }
};

TEST_F(ModeratedQueue, TellsOfTooFewAfterThePeriod) {
  ASSERT_EQ(moderate(b.cq.get(), 1000, kPeriod), 0);
  for (int round = 0; round < 2; ++round) EXPECT_GE(event_of(2), microseconds(kPeriod));
}

TEST_F(ModeratedQueue, TellsOfEnough) {
  ASSERT_EQ(moderate(b.cq.get(), 4, UINT16_MAX), 0);
  for (int round = 0; round < 2; ++round) event_of(4);
}

TEST_F(ModeratedQueue, HoldsNothingWithoutAPeriodOrACount) {
  for (const auto& [count, period] :
       {std::pair<uint16_t, uint16_t>{1000, 0}, {0, kPeriod}, {1, kPeriod}, {0, 0}}) {
    ASSERT_EQ(moderate(b.cq.get(), count, period), 0);
    event_of(1);
  }
}

TEST_F(ModeratedQueue, DoesNotKeepErrorsWaiting) {
  ASSERT_EQ(moderate(b.cq.get(), 1000, UINT16_MAX), 0);
  ASSERT_EQ(ibv_req_notify_cq(b.cq.get(), 0), 0);
  ASSERT_EQ(b.post_receive(1, b.piece(0, 8)), 0);
  b.modify_to(IBV_QPS_ERR);
  EXPECT_TRUE(readable(b.channel->fd));
  EXPECT_EQ(get_event(b), 0);
}

TEST_F(ModeratedQueue, GoesWhileItHoldsAnEvent) {
  Endpoint endpoint({.type = IBV_QPT_UD, .with_channel = true});
  endpoint.connect(endpoint.address());
  ASSERT_EQ(moderate(endpoint.cq.get(), 1000, 1000), 0);
  ASSERT_EQ(ibv_req_notify_cq(endpoint.cq.get(), 0), 0);
  const ibv_sge piece = endpoint.piece(0, 8);
  ASSERT_EQ(endpoint.post_send(send_request(1), {&piece, 1}), 0);
  endpoint.qp.reset();
  endpoint.cq.reset();
  event_of(1);  // the engine thread survives the CQ
}

TEST(CompletionModeration, TheDeviceSaysHowFarItGoes) {
  Context context = open_device();
  ibv_device_attr_ex attr{};
  ASSERT_EQ(ibv_query_device_ex(context.get(), nullptr, &attr), 0);
  EXPECT_EQ(attr.cq_mod_caps.max_cq_count, UINT16_MAX);
  EXPECT_EQ(attr.cq_mod_caps.max_cq_period, UINT16_MAX);
  Cq cq(ibv_create_cq(context.get(), 16, nullptr, nullptr, 0));
  EXPECT_EQ(moderate(cq.get(), attr.cq_mod_caps.max_cq_count, attr.cq_mod_caps.max_cq_period), 0);
}

TEST(CompletionModeration, WhatBadArgumentsGet) {
  Context context = open_device();
  Cq cq(ibv_create_cq(context.get(), 16, nullptr, nullptr, 0));
  ibv_modify_cq_attr attr{};
  EXPECT_EQ(ibv_modify_cq(cq.get(), &attr), EINVAL) << "nothing to change";
  attr.attr_mask = IBV_CQ_ATTR_RESERVED;
  EXPECT_EQ(ibv_modify_cq(cq.get(), &attr), EOPNOTSUPP);
  attr.attr_mask |= IBV_CQ_ATTR_MODERATE;
  EXPECT_EQ(ibv_modify_cq(cq.get(), &attr), EOPNOTSUPP);
}

}  // namespace
}  // namespace verbena::adapter::testing
