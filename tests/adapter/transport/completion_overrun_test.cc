// SPDX-License-Identifier: Apache-2.0
// A QP whose completion queue is full: IBTA volume 1, 11.6.3.2.
#include <algorithm>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "adapter/transport/support/endpoint.h"
#include "base/log.h"

namespace verbena::transport {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

template <class Qp>
void post_sends(Endpoint<Qp>& e, int count) {
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_SEND;
  for (int i = 0; i < count; ++i) post_send(*e.qp, wr);
}

TEST(CompletionOverrun, EndsTheQueuePairThatCannotReport) {
  Endpoint<UdQueuePair> e({.cq_entries = 3});
  e.bring_up();
  post_sends(e, 3);
  e.transmit();
  e.qp->answer_lost_completions();
  EXPECT_EQ(e.qp->state(), IBV_QPS_RTS) << "all have found a place";
  post_sends(e, 5);
  e.transmit();
  EXPECT_EQ(e.log.overflows, 1);
  EXPECT_THAT(e.log.events, IsEmpty());
  e.qp->answer_lost_completions();
  EXPECT_EQ(e.qp->state(), IBV_QPS_ERR);
  EXPECT_THAT(e.log.events, ElementsAre(IBV_EVENT_QP_FATAL));
  EXPECT_TRUE(e.qp->send_queue().empty());
  e.qp->answer_lost_completions();
  EXPECT_THAT(e.log.events, ElementsAre(IBV_EVENT_QP_FATAL)) << "once";
}

TEST(CompletionOverrun, EndsAReceiverToo) {
  Endpoint<RcQueuePair> e({.cq_entries = 1});
  e.bring_up();
  for (int i = 0; i < 4; ++i) post_recv(*e.qp, {});
  for (uint32_t i = 0; i < 3; ++i) {
    e.receive(rc_headers(roce::Operation::kSendOnly, 200 + i));
    e.qp->answer_lost_completions();
  }
  EXPECT_EQ(e.qp->state(), IBV_QPS_ERR);
  EXPECT_THAT(e.log.events, ElementsAre(IBV_EVENT_QP_FATAL));
}

TEST(CompletionOverrun, IsOneLineInTheLog) {
  const LogLevel before = log_level();
  set_log_level(LogLevel::kError);
  Endpoint<UdQueuePair> e({.cq_entries = 3});
  e.bring_up();
  testing::internal::CaptureStderr();
  post_sends(e, 8);
  e.transmit();
  e.qp->answer_lost_completions();
  const std::string said = testing::internal::GetCapturedStderr();
  set_log_level(before);
  const std::string entries = std::to_string(e.send_cq->capacity());
  EXPECT_THAT(said,
              testing::HasSubstr("CQ overrun: a completion of its send queue is lost, as the completion "
                                 "queue of " +
                                 entries + " entries is full"));
  EXPECT_EQ(std::ranges::count(said, '\n'), 1) << said;
}

TEST(CompletionOverrun, OfAFlushIsNoFurtherError) {
  Endpoint<RcQueuePair> e({.cq_entries = 1});
  e.bring_up();
  for (int i = 0; i < 4; ++i) post_recv(*e.qp, {});
  e.qp->enter(IBV_QPS_ERR);
  EXPECT_EQ(e.log.overflows, 1);
  e.qp->answer_lost_completions();
  EXPECT_THAT(e.log.events, IsEmpty()) << "it was in error before";
}

TEST(CompletionOverrun, IsForgottenWithAReset) {
  Endpoint<RcQueuePair> e({.cq_entries = 1});
  e.bring_up();
  for (int i = 0; i < 4; ++i) post_recv(*e.qp, {});
  e.qp->enter(IBV_QPS_ERR);
  e.qp->enter(IBV_QPS_RESET);
  e.bring_up();
  e.qp->answer_lost_completions();
  EXPECT_EQ(e.qp->state(), IBV_QPS_RTS);
}

}  // namespace
}  // namespace verbena::transport
