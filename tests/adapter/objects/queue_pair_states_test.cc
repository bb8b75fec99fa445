// SPDX-License-Identifier: Apache-2.0
// modify_qp and query_qp through the C ABI. The full table of transitions is in
// adapter/transport/qp_state_test.
#include <cstring>
#include <functional>

#include "adapter/objects/support/endpoint.h"

namespace verbena::adapter::testing {
namespace {

TEST(ModifyQp, RefusesValuesOutOfRangeAndChangesNothing) {
  struct Case {
    const char* what;
    ibv_qp_state from;
    std::function<void(ibv_qp_attr&)> change;
    int error;
  };
  const Case cases[] = {
      {"port 0", IBV_QPS_RESET, [](auto& a) { a.port_num = 0; }, EINVAL},
      {"port 2", IBV_QPS_RESET, [](auto& a) { a.port_num = 2; }, EINVAL},
      {"a P_Key that is not there", IBV_QPS_RESET, [](auto& a) { a.pkey_index = 1; }, EINVAL},
      {"no path MTU", IBV_QPS_INIT, [](auto& a) { a.path_mtu = static_cast<ibv_mtu>(0); }, EINVAL},
      {"path MTU 8192", IBV_QPS_INIT, [](auto& a) { a.path_mtu = static_cast<ibv_mtu>(6); }, EINVAL},
      {"a QPN of 25 bits", IBV_QPS_INIT, [](auto& a) { a.dest_qp_num = 1 << 24; }, EINVAL},
      {"too many READs", IBV_QPS_INIT, [](auto& a) { a.max_dest_rd_atomic = 200; }, EINVAL},
      {"an RNR timer of six bits", IBV_QPS_INIT, [](auto& a) { a.min_rnr_timer = 32; }, EINVAL},
      {"no global route", IBV_QPS_INIT, [](auto& a) { a.ah_attr.is_global = 0; }, EINVAL},
      {"a GID that is not there", IBV_QPS_INIT, [](auto& a) { a.ah_attr.grh.sgid_index = 99; }, EINVAL},
      {"another port's path", IBV_QPS_INIT, [](auto& a) { a.ah_attr.port_num = 2; }, EINVAL},
      {"a timeout of six bits", IBV_QPS_RTR, [](auto& a) { a.timeout = 32; }, EINVAL},
      {"eight retries", IBV_QPS_RTR, [](auto& a) { a.retry_cnt = 8; }, EINVAL},
      {"eight RNR retries", IBV_QPS_RTR, [](auto& a) { a.rnr_retry = 8; }, EINVAL},
      {"too many READs at once", IBV_QPS_RTR, [](auto& a) { a.max_rd_atomic = 200; }, EINVAL},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    Endpoint endpoint;
    const Address self = endpoint.address();
    struct Step {
      ibv_qp_attr attr;
      int mask;
    };
    const Step steps[] = {{init_attributes(endpoint.options), init_mask(IBV_QPT_RC)},
                          {rtr_attributes(endpoint, self), rtr_mask(IBV_QPT_RC)},
                          {rts_attributes(endpoint), rts_mask(IBV_QPT_RC)}};
    size_t at = 0;
    for (; endpoint.state() != c.from; ++at) {
      ibv_qp_attr attr = steps[at].attr;
      ASSERT_EQ(ibv_modify_qp(endpoint.qp.get(), &attr, steps[at].mask), 0);
    }
    ibv_qp_attr attr = steps[at].attr;
    c.change(attr);
    EXPECT_EQ(ibv_modify_qp(endpoint.qp.get(), &attr, steps[at].mask), c.error);
    EXPECT_EQ(endpoint.state(), c.from);
    attr = steps[at].attr;
    EXPECT_EQ(ibv_modify_qp(endpoint.qp.get(), &attr, steps[at].mask), 0) << "the right one still works";
  }
}

TEST(ModifyQp, RefusesIncompleteAndForeignAttributes) {
  Endpoint endpoint;
  ibv_qp_attr attr = init_attributes(endpoint.options);
  EXPECT_EQ(ibv_modify_qp(endpoint.qp.get(), &attr, IBV_QP_STATE), EINVAL);
  EXPECT_EQ(ibv_modify_qp(endpoint.qp.get(), &attr, init_mask(IBV_QPT_RC) | IBV_QP_QKEY), EINVAL);
  attr.qp_state = IBV_QPS_RTS;
  EXPECT_EQ(ibv_modify_qp(endpoint.qp.get(), &attr, IBV_QP_STATE), EINVAL);
  attr.qp_state = IBV_QPS_UNKNOWN;
  EXPECT_EQ(ibv_modify_qp(endpoint.qp.get(), &attr, IBV_QP_STATE), EINVAL);
  attr.qp_state = IBV_QPS_INIT;
  attr.cur_qp_state = IBV_QPS_RTR;
  EXPECT_EQ(ibv_modify_qp(endpoint.qp.get(), &attr, init_mask(IBV_QPT_RC) | IBV_QP_CUR_STATE), EINVAL);
  EXPECT_EQ(endpoint.state(), IBV_QPS_RESET);
}

TEST(ModifyQp, TakesPsnsFromNumbersOfMoreThan24Bits) {
  Endpoint endpoint;
  const Address self = endpoint.address();
  ibv_qp_attr attr = init_attributes(endpoint.options);
  ASSERT_EQ(ibv_modify_qp(endpoint.qp.get(), &attr, init_mask(IBV_QPT_RC)), 0);
  attr = rtr_attributes(endpoint, self);
  attr.rq_psn = 0xab123456;
  ASSERT_EQ(ibv_modify_qp(endpoint.qp.get(), &attr, rtr_mask(IBV_QPT_RC)), 0);
  ibv_qp_init_attr init{};
  ASSERT_EQ(ibv_query_qp(endpoint.qp.get(), &attr, IBV_QP_RQ_PSN, &init), 0);
  EXPECT_EQ(attr.rq_psn, 0x123456u);
}

TEST(QueryQp, SaysWhatWasSet) {
  Pair pair({.bytes = 4096,
             .mtu = IBV_MTU_2048,
             .timeout = 12,
             .retries = 3,
             .rnr_retries = 5,
             .max_rd_atomic = 9});
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(ibv_query_qp(pair.a.qp.get(), &attr, IBV_QP_STATE, &init), 0);
  EXPECT_EQ(attr.qp_state, IBV_QPS_RTS);
  EXPECT_EQ(attr.cur_qp_state, IBV_QPS_RTS);
  EXPECT_EQ(attr.path_mtu, IBV_MTU_2048);
  EXPECT_EQ(attr.dest_qp_num, pair.b.qp->qp_num);
  EXPECT_EQ(attr.rq_psn, pair.b.address().psn);
  EXPECT_EQ(attr.sq_psn, pair.a.address().psn);
  EXPECT_EQ(attr.qp_access_flags, kAllAccess);
  EXPECT_EQ(attr.port_num, 1);
  EXPECT_EQ(attr.pkey_index, 0);
  EXPECT_EQ(attr.timeout, 12);
  EXPECT_EQ(attr.retry_cnt, 3);
  EXPECT_EQ(attr.rnr_retry, 5);
  EXPECT_EQ(attr.max_rd_atomic, 9);
  EXPECT_EQ(attr.max_dest_rd_atomic, 9);
  EXPECT_EQ(attr.min_rnr_timer, 1);
  EXPECT_EQ(attr.sq_draining, 0);
  EXPECT_EQ(attr.ah_attr.is_global, 1);
  const Address peer = pair.b.address();
  EXPECT_EQ(std::memcmp(&attr.ah_attr.grh.dgid, &peer.gid, 16), 0);
  EXPECT_EQ(init.send_cq, pair.a.cq.get());
  EXPECT_EQ(init.recv_cq, pair.a.cq.get());
  EXPECT_EQ(init.srq, nullptr);
  EXPECT_EQ(init.qp_type, IBV_QPT_RC);
  EXPECT_EQ(init.sq_sig_all, 0);
  EXPECT_EQ(init.cap.max_send_wr, attr.cap.max_send_wr);
  EXPECT_GE(init.cap.max_send_wr, pair.a.options.cap.max_send_wr);
  EXPECT_EQ(ibv_query_qp(pair.a.qp.get(), &attr, IBV_QP_RATE_LIMIT, &init), EOPNOTSUPP);
}

TEST(QueryQp, FollowsThePsnsOfTraffic) {
  Pair pair;
  ASSERT_EQ(pair.b.post_receive(1, pair.b.piece(0, 4096)), 0);
  const ibv_sge piece = pair.a.piece(0, 4096);  // four packets
  ASSERT_EQ(pair.a.post_send(send_request(1), {&piece, 1}), 0);
  ASSERT_EQ(pair.a.completion().status, IBV_WC_SUCCESS);
  ASSERT_EQ(pair.b.completion().status, IBV_WC_SUCCESS);
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(ibv_query_qp(pair.a.qp.get(), &attr, IBV_QP_SQ_PSN, &init), 0);
  EXPECT_EQ(attr.sq_psn, (pair.a.address().psn + 4) & 0xffffff);
  ASSERT_EQ(ibv_query_qp(pair.b.qp.get(), &attr, IBV_QP_RQ_PSN, &init), 0);
  EXPECT_EQ(attr.rq_psn, (pair.a.address().psn + 4) & 0xffffff);
}

TEST(ModifyQp, ResetForgetsEverythingAndTheQueuePairWorksAgain) {
  Pair pair;
  ASSERT_EQ(pair.b.post_receive(1, pair.b.piece(0, 8)), 0);
  pair.a.modify_to(IBV_QPS_ERR);
  EXPECT_EQ(pair.a.qp->state, IBV_QPS_ERR);
  pair.a.modify_to(IBV_QPS_RESET);
  pair.b.modify_to(IBV_QPS_RESET);
  EXPECT_EQ(pair.a.state(), IBV_QPS_RESET);
  EXPECT_TRUE(pair.b.quiet()) << "RESET completes nothing";
  pair.a.connect(pair.b.address());
  pair.b.connect(pair.a.address());
  ASSERT_EQ(pair.b.post_receive(2, pair.b.piece(0, 8)), 0);
  const ibv_sge piece = pair.a.piece(0, 8);
  ASSERT_EQ(pair.a.post_send(send_request(3), {&piece, 1}), 0);
  EXPECT_EQ(pair.a.completion().status, IBV_WC_SUCCESS);
  EXPECT_EQ(pair.b.completion().wr_id, 2u);
}

TEST(ModifyQp, DrainsInSqdAndGoesOnInRts) {
  Pair pair;
  for (uint64_t i = 0; i < 3; ++i) ASSERT_EQ(pair.b.post_receive(i, pair.b.piece(0, 8)), 0);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_SQD;
  attr.en_sqd_async_notify = 1;
  ASSERT_EQ(ibv_modify_qp(pair.a.qp.get(), &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
  ibv_async_event event;
  ASSERT_EQ(ibv_get_async_event(pair.a.context.get(), &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_SQ_DRAINED);
  EXPECT_EQ(event.element.qp, pair.a.qp.get());
  ibv_ack_async_event(&event);

  const ibv_sge piece = pair.a.piece(0, 8);
  ASSERT_EQ(pair.a.post_send(send_request(9), {&piece, 1}), 0);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(pair.a.quiet()) << "nothing new is sent in SQD";
  pair.a.modify_to(IBV_QPS_RTS);
  EXPECT_EQ(pair.a.completion().wr_id, 9u);
}

TEST(ModifyQp, SendErrorOfADatagramStopsTheSendQueueOnly) {
  Pair pair({.type = IBV_QPT_UD, .bytes = 1 << 16});
  ASSERT_EQ(pair.a.post_receive(1, pair.a.piece(0, 256)), 0);
  const ibv_sge wrong = {pair.a.piece(0, 8).addr, 8, 0x12345678};
  ASSERT_EQ(pair.a.post_send(send_request(2), {&wrong, 1}), 0);
  EXPECT_EQ(pair.a.completion().status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(pair.a.state(), IBV_QPS_SQE);
  const ibv_sge right = pair.a.piece(512, 8);
  ASSERT_EQ(pair.a.post_send(send_request(3), {&right, 1}), 0);
  EXPECT_EQ(pair.a.completion().status, IBV_WC_WR_FLUSH_ERR);
  // Receiving continues in this state.
  ASSERT_EQ(pair.b.post_send(send_request(4), {&right, 0}), 0);
  const ibv_wc received = pair.a.completion();
  EXPECT_EQ(received.wr_id, 1u);
  EXPECT_EQ(received.status, IBV_WC_SUCCESS);
  pair.a.modify_to(IBV_QPS_RTS);
  ASSERT_EQ(pair.a.post_send(send_request(5), {&right, 1}), 0);
  EXPECT_EQ(pair.a.completion().status, IBV_WC_SUCCESS);
}

// As in libibverbs, ibv_query_qp() changes `qp->state` only if the mask requests the state.
TEST(QueryQp, LeavesTheStateOfTheStructAloneUnlessAskedForIt) {
  Pair pair;
  const ibv_sge piece = pair.a.piece(0, 8);
  Address wrong = pair.b.address();
  wrong.rkey ^= 0x100;
  ASSERT_EQ(pair.a.post_send(remote_request(IBV_WR_RDMA_WRITE, 1, wrong), {&piece, 1}), 0);
  ASSERT_EQ(pair.a.completion().status, IBV_WC_REM_ACCESS_ERR);
  ASSERT_EQ(pair.a.qp->state, IBV_QPS_RTS) << "nobody has told the program yet";
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(ibv_query_qp(pair.a.qp.get(), &attr, IBV_QP_AV | IBV_QP_DEST_QPN, &init), 0);
  EXPECT_EQ(attr.qp_state, IBV_QPS_ERR);
  EXPECT_EQ(pair.a.qp->state, IBV_QPS_RTS);
  ASSERT_EQ(ibv_query_qp(pair.a.qp.get(), &attr, IBV_QP_STATE, &init), 0);
  EXPECT_EQ(pair.a.qp->state, IBV_QPS_ERR);
}

// As in libibverbs: ibv_cmd_query_qp() leaves these fields alone, and takes init_attr's objects from the QP.
TEST(QueryQp, LeavesOtherFieldsOfTheProgramAlone) {
  Endpoint endpoint;
  ibv_qp_attr attr{};
  attr.en_sqd_async_notify = 77;
  attr.rate_limit = 7777;
  ibv_qp_init_attr init{};
  int its_context = 0;
  endpoint.qp->qp_context = &its_context;
  ASSERT_EQ(ibv_query_qp(endpoint.qp.get(), &attr, IBV_QP_STATE, &init), 0);
  EXPECT_EQ(attr.en_sqd_async_notify, 77);
  EXPECT_EQ(attr.rate_limit, 7777u);
  EXPECT_EQ(init.qp_context, &its_context);
  EXPECT_EQ(init.send_cq, endpoint.cq.get());
  EXPECT_EQ(init.recv_cq, endpoint.cq.get());
  EXPECT_EQ(init.cap.max_send_wr, attr.cap.max_send_wr);
}

}  // namespace
}  // namespace verbena::adapter::testing
