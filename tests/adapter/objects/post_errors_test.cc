// SPDX-License-Identifier: Apache-2.0
// Errors that posting returns at once, and the request that `bad` then names.
#include <algorithm>
#include <functional>

#include "adapter/objects/support/endpoint.h"

namespace verbena::adapter::testing {
namespace {

TEST(PostSend, RefusesWhatTheServiceDoesNotHave) {
  struct Case {
    const char* what;
    ibv_qp_type type;
    ibv_wr_opcode opcode;
    int error;
  };
  const Case cases[] = {
      {"binding a window with data", IBV_QPT_RC, IBV_WR_BIND_MW, EINVAL},
      {"local invalidation with data", IBV_QPT_RC, IBV_WR_LOCAL_INV, EINVAL},
      {"local invalidation over UD", IBV_QPT_UD, IBV_WR_LOCAL_INV, EINVAL},
      {"segmentation offload", IBV_QPT_UD, IBV_WR_TSO, EOPNOTSUPP},
      {"segmentation offload over RC", IBV_QPT_RC, IBV_WR_TSO, EINVAL},
      {"a driver's own", IBV_QPT_RC, IBV_WR_DRIVER1, EOPNOTSUPP},
      {"binding a window over UD", IBV_QPT_UD, IBV_WR_BIND_MW, EINVAL},
      {"no such opcode", IBV_QPT_RC, static_cast<ibv_wr_opcode>(12), EINVAL},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    Pair pair({.type = c.type});
    const ibv_sge piece = pair.a.piece(0, 8);
    EXPECT_EQ(pair.a.post_send(remote_request(c.opcode, 1, pair.b.address()), {&piece, 1}), c.error);
    EXPECT_TRUE(pair.a.quiet());
    EXPECT_EQ(pair.a.state(), IBV_QPS_RTS) << "a refusal leaves the QP as it is";
  }
}

// The kernel's rxe does not check the service when a request is posted (rxe_requester()).
TEST(PostSend, CompletesOperationsThatAnUnreliableServiceDoesNotHaveWithAnError) {
  struct Case {
    ibv_qp_type type;
    ibv_wr_opcode opcode;
  };
  const Case cases[] = {
      {IBV_QPT_UD, IBV_WR_RDMA_WRITE},
      {IBV_QPT_UD, IBV_WR_RDMA_WRITE_WITH_IMM},
      {IBV_QPT_UD, IBV_WR_RDMA_READ},
      {IBV_QPT_UD, IBV_WR_ATOMIC_FETCH_AND_ADD},
      {IBV_QPT_UD, IBV_WR_ATOMIC_CMP_AND_SWP},
      {IBV_QPT_UD, IBV_WR_SEND_WITH_INV},
      {IBV_QPT_UD, IBV_WR_ATOMIC_WRITE},
      {IBV_QPT_UC, IBV_WR_RDMA_READ},
      {IBV_QPT_UC, IBV_WR_ATOMIC_FETCH_AND_ADD},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(static_cast<int>(c.type) * 100 + static_cast<int>(c.opcode));
    Pair pair({.type = c.type});
    const ibv_sge piece = pair.a.piece(0, 8);
    ASSERT_EQ(pair.a.post_send(remote_request(c.opcode, 1, pair.b.address()), {&piece, 1}), 0);
    const ibv_wc wc = pair.a.completion();
    EXPECT_EQ(wc.wr_id, 1u);
    EXPECT_EQ(wc.status, IBV_WC_LOC_QP_OP_ERR);
    EXPECT_EQ(pair.a.state(), IBV_QPS_SQE);
  }
}

// librxe's post checks the address of an atomic operation, whatever the service.
TEST(PostSend, RefusesAnAtomicOnAnUnalignedAddressOverUd) {
  Pair pair({.type = IBV_QPT_UD});
  ibv_sge piece = pair.a.piece(0, 8);
  ibv_send_wr request = remote_request(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, pair.b.address());
  request.wr.atomic.remote_addr = pair.b.address().buffer + 4;
  request.sg_list = &piece;
  request.num_sge = 1;
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_send(pair.a.qp.get(), &request, &bad), EINVAL);
  EXPECT_EQ(pair.a.state(), IBV_QPS_RTS);
}

TEST(PostSend, RefusesWhatDoesNotFitTheQueuePair) {
  Pair pair;
  struct Case {
    const char* what;
    std::function<void(ibv_send_wr&)> change;
    int error;
  };
  std::vector<ibv_sge> many(pair.a.options.cap.max_send_sge + 1, pair.a.piece(0, 1));
  ibv_sge large = pair.a.piece(0, 4096);
  ibv_sge nowhere = {8, 64, 0};
  ibv_sge short_one = pair.a.piece(0, 4);
  std::vector<ibv_sge> huge(2, {0, 1u << 31, pair.a.mr->lkey});
  const Case cases[] = {
      {"too long a list",
       [&](auto& r) { r.sg_list = many.data(), r.num_sge = static_cast<int>(many.size()); }, EINVAL},
      {"a negative list", [](auto& r) { r.num_sge = -1; }, EINVAL},
      {"too much inline", [&](auto& r) { r.sg_list = &large, r.send_flags |= IBV_SEND_INLINE; }, EINVAL},
      {"inline from nowhere", [&](auto& r) { r.sg_list = &nowhere, r.send_flags |= IBV_SEND_INLINE; },
       EFAULT},
      {"READ into inline", [](auto& r) { r.opcode = IBV_WR_RDMA_READ, r.send_flags |= IBV_SEND_INLINE; },
       EINVAL},
      {"four gigabytes", [&](auto& r) { r.sg_list = huge.data(), r.num_sge = 2; }, EINVAL},
      {"an atomic into four bytes",
       [&](auto& r) { r.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, r.sg_list = &short_one; }, EINVAL},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    ibv_sge piece = pair.a.piece(0, 8);
    ibv_send_wr request = remote_request(IBV_WR_RDMA_WRITE, 1, pair.b.address());
    request.sg_list = &piece;
    request.num_sge = 1;
    c.change(request);
    ibv_send_wr* bad = nullptr;
    EXPECT_EQ(ibv_post_send(pair.a.qp.get(), &request, &bad), c.error);
    EXPECT_EQ(bad, &request);
  }
  EXPECT_TRUE(pair.a.quiet());
}

// The responder reports it, as with adapters (IBTA volume 1, 9.4.5.3), for both ways of posting.
TEST(PostSend, AnAtomicOnAnUnalignedAddressIsAnInvalidRequestToTheResponder) {
  for (const bool extended : {false, true}) {
    SCOPED_TRACE(extended ? "ibv_wr_atomic_fetch_add" : "ibv_post_send");
    Pair pair({.send_operations = IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD});
    const ibv_sge piece = pair.a.piece(0, 8);
    const uint64_t unaligned = pair.b.address().buffer + 4;
    const std::vector<std::byte> before(pair.b.buffer(), pair.b.buffer() + 16);
    if (extended) {
      ibv_qp_ex* qp = ibv_qp_to_qp_ex(pair.a.qp.get());
      ASSERT_NE(qp, nullptr);
      ibv_wr_start(qp);
      qp->wr_id = 1;
      qp->wr_flags = IBV_SEND_SIGNALED;
      ibv_wr_atomic_fetch_add(qp, pair.b.mr->rkey, unaligned, 1);
      ibv_wr_set_sge(qp, piece.lkey, piece.addr, piece.length);
      ASSERT_EQ(ibv_wr_complete(qp), 0);
    } else {
      ibv_send_wr request = remote_request(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, pair.b.address());
      request.wr.atomic = {.remote_addr = unaligned, .compare_add = 1, .swap = 0, .rkey = pair.b.mr->rkey};
      ASSERT_EQ(pair.a.post_send(request, {&piece, 1}), 0);
    }
    const ibv_wc wc = pair.a.completion();
    EXPECT_EQ(wc.wr_id, 1u);
    EXPECT_EQ(wc.status, IBV_WC_REM_INV_REQ_ERR);
    EXPECT_TRUE(std::equal(before.begin(), before.end(), pair.b.buffer()));
  }
}

TEST(PostSend, GoesAsFarAsTheQueueHasRoom) {
  Pair pair(
      {.cap = {
           .max_send_wr = 4, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0}});
  // The peer does not answer, so the queue stays full.
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RESET;
  ASSERT_EQ(ibv_modify_qp(pair.b.qp.get(), &attr, IBV_QP_STATE), 0);
  ibv_sge piece = pair.a.piece(0, 8);
  ibv_send_wr requests[7];
  for (uint64_t i = 0; i < 7; ++i) {
    requests[i] = send_request(i);
    requests[i].sg_list = &piece;
    requests[i].num_sge = 1;
    requests[i].next = i < 6 ? &requests[i + 1] : nullptr;
  }
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_send(pair.a.qp.get(), requests, &bad), ENOMEM);
  EXPECT_EQ(bad, &requests[4]);
  EXPECT_EQ(ibv_post_send(pair.a.qp.get(), bad, &bad), ENOMEM);
  EXPECT_EQ(bad, &requests[4]);
  // Requests before the refused one were posted: they are flushed.
  pair.a.modify_to(IBV_QPS_ERR);
  for (uint64_t i = 0; i < 4; ++i) {
    const ibv_wc wc = pair.a.completion();
    EXPECT_EQ(wc.wr_id, i);
    EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
  }
  EXPECT_TRUE(pair.a.quiet());
}

TEST(PostSend, DependsOnTheState) {
  Endpoint endpoint;
  const ibv_sge piece = endpoint.piece(0, 8);
  const auto post = [&] { return endpoint.post_send(send_request(1), {&piece, 1}); };
  EXPECT_EQ(post(), EINVAL);  // RESET
  ibv_qp_attr attr = init_attributes(endpoint.options);
  ASSERT_EQ(ibv_modify_qp(endpoint.qp.get(), &attr, init_mask(IBV_QPT_RC)), 0);
  EXPECT_EQ(post(), EINVAL);  // INIT
  attr = rtr_attributes(endpoint, endpoint.address());
  ASSERT_EQ(ibv_modify_qp(endpoint.qp.get(), &attr, rtr_mask(IBV_QPT_RC)), 0);
  EXPECT_EQ(post(), EINVAL);  // RTR
  endpoint.modify_to(IBV_QPS_ERR);
  EXPECT_EQ(post(), 0);
  EXPECT_EQ(endpoint.completion().status, IBV_WC_WR_FLUSH_ERR);
}

// The state is checked before the request: an operation that UD lacks gets the same error.
TEST(PostSend, DependsOnTheStateForDatagrams) {
  Endpoint endpoint({.type = IBV_QPT_UD});
  const ibv_sge piece = endpoint.piece(0, 8);
  const auto expect_refusals = [&] {
    EXPECT_EQ(endpoint.post_send(send_request(1), {&piece, 1}), EINVAL);
    ibv_send_wr write = send_request(1);
    write.opcode = IBV_WR_RDMA_WRITE;
    EXPECT_EQ(endpoint.post_send(write, {&piece, 1}), EINVAL);
  };
  expect_refusals();  // RESET
  ibv_qp_attr attr = init_attributes(endpoint.options);
  attr.qkey = kQkey;
  ASSERT_EQ(ibv_modify_qp(endpoint.qp.get(), &attr, init_mask(IBV_QPT_UD)), 0);
  expect_refusals();  // INIT
  endpoint.modify_to(IBV_QPS_RTR);
  expect_refusals();  // RTR
  EXPECT_TRUE(endpoint.quiet());
}

TEST(PostReceive, DependsOnTheState) {
  Endpoint endpoint;
  EXPECT_EQ(endpoint.post_receive(1, endpoint.piece(0, 8)), EINVAL);  // RESET
  ibv_qp_attr attr = init_attributes(endpoint.options);
  ASSERT_EQ(ibv_modify_qp(endpoint.qp.get(), &attr, init_mask(IBV_QPT_RC)), 0);
  EXPECT_EQ(endpoint.post_receive(2, endpoint.piece(0, 8)), 0);
  EXPECT_TRUE(endpoint.quiet());
  endpoint.modify_to(IBV_QPS_ERR);
  EXPECT_EQ(endpoint.post_receive(3, endpoint.piece(0, 8)), 0);
  for (uint64_t wr_id : {2, 3}) {
    const ibv_wc wc = endpoint.completion();
    EXPECT_EQ(wc.wr_id, wr_id);
    EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(wc.qp_num, endpoint.qp->qp_num);
  }
}

TEST(PostReceive, SaysWhichRequestItRefuses) {
  Endpoint endpoint(
      {.cap = {
           .max_send_wr = 1, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 2, .max_inline_data = 0}});
  ibv_qp_attr attr = init_attributes(endpoint.options);
  ASSERT_EQ(ibv_modify_qp(endpoint.qp.get(), &attr, init_mask(IBV_QPT_RC)), 0);
  std::vector<ibv_sge> list(3, endpoint.piece(0, 8));
  ibv_recv_wr requests[6]{};
  for (int i = 0; i < 6; ++i) {
    requests[i].sg_list = list.data();
    requests[i].num_sge = i == 2 ? 3 : 2;
    requests[i].next = i < 5 ? &requests[i + 1] : nullptr;
  }
  ibv_recv_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_recv(endpoint.qp.get(), requests, &bad), EINVAL);
  EXPECT_EQ(bad, &requests[2]);
  EXPECT_EQ(ibv_post_recv(endpoint.qp.get(), &requests[3], &bad), ENOMEM) << "two of four places are taken";
  EXPECT_EQ(bad, &requests[5]);
}

TEST(PostReceive, RefusesAQueuePairWithoutAReceiveQueueOfItsOwn) {
  Endpoint endpoint;
  ibv_srq_init_attr srq_init{};
  srq_init.attr = {.max_wr = 4, .max_sge = 1, .srq_limit = 0};
  std::unique_ptr<ibv_srq, Destroy<ibv_destroy_srq>> srq(ibv_create_srq(endpoint.pd.get(), &srq_init));
  ASSERT_NE(srq, nullptr);
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = endpoint.cq.get();
  init.srq = srq.get();
  init.qp_type = IBV_QPT_RC;
  init.cap = endpoint.options.cap;
  Qp qp(ibv_create_qp(endpoint.pd.get(), &init));
  ASSERT_NE(qp, nullptr);
  ibv_qp_attr attr = init_attributes(endpoint.options);
  ASSERT_EQ(ibv_modify_qp(qp.get(), &attr, init_mask(IBV_QPT_RC)), 0);
  ibv_recv_wr receive{};
  ibv_recv_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_recv(qp.get(), &receive, &bad), EINVAL);
  EXPECT_EQ(bad, &receive);
}

TEST(Posting, LeavesTheBadRequestAloneWhenAllIsWell) {
  Pair pair;
  ibv_recv_wr receive{};
  EXPECT_EQ(ibv_post_recv(pair.b.qp.get(), &receive, nullptr), 0);
  ibv_send_wr send = send_request(1);
  EXPECT_EQ(ibv_post_send(pair.a.qp.get(), &send, nullptr), 0);
  EXPECT_EQ(pair.a.completion().status, IBV_WC_SUCCESS);
  EXPECT_EQ(ibv_post_send(pair.a.qp.get(), nullptr, nullptr), 0) << "an empty list is no error";
}

TEST(PostSend, RefusesADatagramWithoutAnAddressHandle) {
  Pair pair({.type = IBV_QPT_UD});
  ibv_send_wr request = send_request(1);
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_send(pair.a.qp.get(), &request, &bad), EINVAL);
  EXPECT_EQ(bad, &request);
}

// The kernel's rxe does the same (rxe_get_av()).
TEST(PostSend, CompletesADatagramByAnAddressHandleOfAnotherProtectionDomainWithAnError) {
  for (const bool extended : {false, true}) {
    SCOPED_TRACE(extended ? "ibv_wr_send" : "ibv_post_send");
    Pair pair({.type = IBV_QPT_UD, .send_operations = IBV_QP_EX_WITH_SEND});
    Pd other(ibv_alloc_pd(pair.a.context.get()));
    ibv_ah_attr attr = rtr_attributes(pair.a, pair.b.address()).ah_attr;
    Ah foreign(ibv_create_ah(other.get(), &attr));
    ASSERT_NE(foreign, nullptr);
    ASSERT_EQ(pair.b.post_receive(1, pair.b.piece(0, 64)), 0);
    if (extended) {
      ibv_qp_ex* qp = ibv_qp_to_qp_ex(pair.a.qp.get());
      ibv_wr_start(qp);
      qp->wr_id = 1;
      qp->wr_flags = IBV_SEND_SIGNALED;
      ibv_wr_send(qp);
      ibv_wr_set_ud_addr(qp, foreign.get(), pair.b.qp->qp_num, kQkey);
      ASSERT_EQ(ibv_wr_complete(qp), 0);
    } else {
      ibv_send_wr request = send_request(1);
      request.wr.ud = {.ah = foreign.get(), .remote_qpn = pair.b.qp->qp_num, .remote_qkey = kQkey};
      ibv_send_wr* bad = nullptr;
      ASSERT_EQ(ibv_post_send(pair.a.qp.get(), &request, &bad), 0);
    }
    const ibv_wc wc = pair.a.completion();
    EXPECT_EQ(wc.wr_id, 1u);
    EXPECT_EQ(wc.status, IBV_WC_LOC_QP_OP_ERR);
    EXPECT_TRUE(pair.b.quiet());
  }
}

}  // namespace
}  // namespace verbena::adapter::testing
