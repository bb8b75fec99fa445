// SPDX-License-Identifier: Apache-2.0
// Completions that do not fit their queue: the CQ gets an error, and so does each QP with a completion for
// it.
#include <atomic>
#include <thread>

#include <poll.h>

#include "adapter/objects/support/endpoint.h"
#include "base/watched_thread.h"

namespace verbena::adapter::testing {
namespace {

ibv_async_event next_event(ibv_context* context) {
  ibv_async_event event{};
  pollfd entry{context->async_fd, POLLIN, 0};
  EXPECT_EQ(::poll(&entry, 1, 10'000), 1) << "no event within ten seconds";
  if (entry.revents != 0) {
    EXPECT_EQ(ibv_get_async_event(context, &event), 0);
    ibv_ack_async_event(&event);
  }
  return event;
}

TEST(CompletionOverrun, TakesTheQueuePairToErrorAndTells) {
  Pair pair(Options{}, Options{.cqe = 3});
  const ibv_sge piece = pair.a.piece(0, 8);
  for (uint64_t i = 0; i < 5; ++i) ASSERT_EQ(pair.b.post_receive(i, pair.b.piece(0, 8)), 0);
  for (uint64_t i = 0; i < 5; ++i) ASSERT_EQ(pair.a.post_send(send_request(i), {&piece, 1}), 0);
  // No thread polls b, so the engine thread receives.
  ibv_async_event event = next_event(pair.b.context.get());
  EXPECT_EQ(event.event_type, IBV_EVENT_CQ_ERR);
  EXPECT_EQ(event.element.cq, pair.b.cq.get());
  event = next_event(pair.b.context.get());
  EXPECT_EQ(event.event_type, IBV_EVENT_QP_FATAL);
  EXPECT_EQ(event.element.qp, pair.b.qp.get());
  EXPECT_EQ(pair.b.state(), IBV_QPS_ERR);
  for (uint64_t i = 0; i < 4; ++i) EXPECT_EQ(pair.b.completion().wr_id, i) << "what fitted is there";
}

TEST(CompletionOverrun, DestroyingTheQueueWaitsUntilItsEventIsAcknowledged) {
  Endpoint endpoint({.cqe = 1});
  ibv_qp_attr attr = init_attributes(endpoint.options);
  ASSERT_EQ(ibv_modify_qp(endpoint.qp.get(), &attr, init_mask(IBV_QPT_RC)), 0);
  for (uint64_t i = 0; i < 3; ++i) ASSERT_EQ(endpoint.post_receive(i, endpoint.piece(0, 8)), 0);
  endpoint.modify_to(IBV_QPS_ERR);
  ibv_async_event event{};
  ASSERT_EQ(ibv_get_async_event(endpoint.context.get(), &event), 0);
  ASSERT_EQ(event.event_type, IBV_EVENT_CQ_ERR);
  endpoint.qp.reset();
  test::WatchedThread destroyer([&] { endpoint.cq.reset(); });
  EXPECT_TRUE(destroyer.falls_asleep());
  ibv_ack_async_event(&event);
  destroyer.join();
}

TEST(CompletionOverrun, LeavesAQueuePairAloneThatHasNothingToTell) {
  Endpoint target({.cqe = 3});
  Endpoint peer;
  target.connect(peer.address());
  peer.connect(target.address());
  // Another QP with the same CQ fills it.
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = target.cq.get();
  init.cap.max_recv_wr = 8;
  init.qp_type = IBV_QPT_RC;
  Qp other(ibv_create_qp(target.pd.get(), &init));
  ibv_qp_attr attr = init_attributes(target.options);
  ASSERT_EQ(ibv_modify_qp(other.get(), &attr, init_mask(IBV_QPT_RC)), 0);
  for (int i = 0; i < 8; ++i) {
    ibv_recv_wr request{};
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_recv(other.get(), &request, &bad), 0);
  }
  attr.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(ibv_modify_qp(other.get(), &attr, IBV_QP_STATE), 0);
  EXPECT_EQ(next_event(target.context.get()).event_type, IBV_EVENT_CQ_ERR);

  const ibv_sge piece = peer.piece(0, 8);
  ASSERT_EQ(peer.post_send(remote_request(IBV_WR_RDMA_WRITE, 1, target.address()), {&piece, 1}), 0);
  EXPECT_EQ(peer.completion().status, IBV_WC_SUCCESS);
  EXPECT_EQ(target.state(), IBV_QPS_RTS);

  // The next message needs a completion.
  ASSERT_EQ(target.post_receive(1, target.piece(0, 8)), 0);
  ASSERT_EQ(peer.post_send(send_request(2), {&piece, 1}), 0);
  const ibv_async_event event = next_event(target.context.get());
  EXPECT_EQ(event.event_type, IBV_EVENT_QP_FATAL);
  EXPECT_EQ(event.element.qp, target.qp.get());
}

}  // namespace
}  // namespace verbena::adapter::testing
