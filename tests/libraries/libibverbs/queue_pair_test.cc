// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include <gtest/gtest.h>

#include "libraries/libibverbs/opened_device.h"

namespace verbena::fake {
namespace {

class QueuePair : public OpenedDevice {
 protected:
  QueuePair() : pd_(ibv_alloc_pd(context_)), cq_(ibv_create_cq(context_, 100, nullptr, nullptr, 0)) {
    attr_.send_cq = attr_.recv_cq = cq_;
    attr_.cap = {10, 11, 1, 2, 0};
    attr_.qp_type = IBV_QPT_RC;
    attr_.qp_context = this;
    attr_.sq_sig_all = 1;
  }
  ~QueuePair() override {
    ibv_destroy_cq(cq_);
    ibv_dealloc_pd(pd_);
  }
  static FakeQp& fake_of(ibv_qp* qp) { return *static_cast<FakeQp*>(qp); }

  ibv_pd* pd_;
  ibv_cq* cq_;
  ibv_qp_init_attr attr_{};
};

TEST_F(QueuePair, IsMadeAsAskedAndTellsItsCapabilities) {
  ibv_qp* qp = ibv_create_qp(pd_, &attr_);
  ASSERT_NE(qp, nullptr);
  EXPECT_EQ(attr_.cap.max_inline_data, 256U);
  EXPECT_EQ(attr_.cap.max_send_wr, 10U);
  const ibv_qp_init_attr_ex& got = fake_of(qp).init_attr;
  EXPECT_EQ(got.comp_mask, uint32_t{IBV_QP_INIT_ATTR_PD});
  EXPECT_EQ(got.pd, pd_);
  EXPECT_EQ(got.qp_context, this);
  EXPECT_EQ(got.sq_sig_all, 1);
  EXPECT_EQ(got.send_ops_flags, 0U);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
}

TEST_F(QueuePair, ReadsNoFieldThatTheMaskDoesNotName) {
  ibv_qp_init_attr_ex wanted;
  std::memset(&wanted, 0xab, sizeof wanted);
  std::memcpy(&wanted, &attr_, offsetof(ibv_qp_init_attr_ex, comp_mask));
  wanted.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS;
  wanted.pd = pd_;
  wanted.create_flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB;
  ibv_qp* qp = ibv_create_qp_ex(context_, &wanted);
  ASSERT_NE(qp, nullptr);
  const ibv_qp_init_attr_ex& got = fake_of(qp).init_attr;
  EXPECT_EQ(got.create_flags, uint32_t{IBV_QP_CREATE_BLOCK_SELF_MCAST_LB});
  EXPECT_EQ(got.xrcd, nullptr);
  EXPECT_EQ(got.source_qpn, 0U);
  EXPECT_EQ(got.send_ops_flags, 0U);
  EXPECT_EQ(wanted.cap.max_inline_data, 256U);
  ibv_destroy_qp(qp);

  wanted.comp_mask = 1U << 20;
  errno = 0;
  EXPECT_EQ(ibv_create_qp_ex(context_, &wanted), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

TEST_F(QueuePair, RefusalsCarryTheProvidersErrno) {
  ibv_qp* qp = ibv_create_qp(pd_, &attr_);
  fake().refuse_with = EINVAL;
  const ibv_qp_cap before = attr_.cap = {1, 2, 3, 4, 5};
  EXPECT_EQ(ibv_create_qp(pd_, &attr_), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(std::memcmp(&attr_.cap, &before, sizeof before), 0);
  ibv_qp_attr state{};
  state.qp_state = IBV_QPS_INIT;
  EXPECT_EQ(ibv_modify_qp(qp, &state, IBV_QP_STATE), EINVAL);
  EXPECT_EQ(qp->state, IBV_QPS_RESET);
  fake().refuse_with = 0;
  ibv_destroy_qp(qp);
}

TEST_F(QueuePair, ItsStateFollowsModifyAndQuery) {
  ibv_qp* qp = ibv_create_qp(pd_, &attr_);
  ibv_qp_attr state{};
  state.qp_state = IBV_QPS_INIT;
  ASSERT_EQ(ibv_modify_qp(qp, &state, IBV_QP_STATE), 0);
  EXPECT_EQ(qp->state, IBV_QPS_INIT);
  state.qp_state = IBV_QPS_RTS;
  ASSERT_EQ(ibv_modify_qp(qp, &state, IBV_QP_QKEY), 0);
  EXPECT_EQ(qp->state, IBV_QPS_INIT) << "the mask does not name the state";

  fake_of(qp).attr.qp_state = IBV_QPS_ERR;
  ibv_qp_attr now{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(ibv_query_qp(qp, &now, IBV_QP_STATE, &init), 0);
  EXPECT_EQ(qp->state, IBV_QPS_ERR);
  EXPECT_EQ(init.send_cq, cq_);
  ibv_destroy_qp(qp);
}

TEST_F(QueuePair, HasNoExtendedInterfaceUnlessTheProviderSays) {
  ibv_qp* qp = ibv_create_qp(pd_, &attr_);
  EXPECT_EQ(ibv_qp_to_qp_ex(qp), nullptr);
  ibv_destroy_qp(qp);
}

TEST_F(QueuePair, PromisesNoOrderWithinAMessageAndKnowsNoEce) {
  ibv_qp* qp = ibv_create_qp(pd_, &attr_);
  EXPECT_EQ(ibv_query_qp_data_in_order(qp, IBV_WR_RDMA_WRITE, 0), 0);
  ibv_ece ece{};
  EXPECT_EQ(ibv_query_ece(qp, &ece), EOPNOTSUPP);
  ece.vendor_id = 0x15b3;
  EXPECT_EQ(ibv_set_ece(qp, &ece), EOPNOTSUPP);
  ibv_destroy_qp(qp);
}

TEST_F(QueuePair, JoinsGroupsThroughTheProvider) {
  ibv_qp* qp = ibv_create_qp(pd_, &attr_);
  const ibv_gid group = gid_entry(0, "ff0e::1").gid;
  EXPECT_EQ(ibv_attach_mcast(qp, &group, 0), 0);
  EXPECT_EQ(fake_of(qp).groups.size(), 1U);
  EXPECT_EQ(ibv_detach_mcast(qp, &group, 0), EOPNOTSUPP);  // not implemented by the fake provider
  ibv_destroy_qp(qp);
}

TEST_F(QueuePair, SharedReceiveQueuesComeInTwoForms) {
  ibv_srq_init_attr attr{};
  attr.srq_context = this;
  attr.attr.max_wr = 7;
  attr.attr.max_sge = 2;
  ibv_srq* srq = ibv_create_srq(pd_, &attr);
  ASSERT_NE(srq, nullptr);
  EXPECT_EQ(attr.attr.max_wr, 8U);
  EXPECT_EQ(static_cast<FakeSrq*>(srq)->init_attr.srq_type, IBV_SRQT_BASIC);
  ibv_srq_attr limits{};
  limits.srq_limit = 3;
  EXPECT_EQ(ibv_modify_srq(srq, &limits, IBV_SRQ_LIMIT), 0);
  ASSERT_EQ(ibv_query_srq(srq, &limits), 0);
  EXPECT_EQ(limits.srq_limit, 3U);
  EXPECT_EQ(limits.max_wr, 8U);
  EXPECT_EQ(ibv_destroy_srq(srq), 0);

  ibv_srq_init_attr_ex extended{};
  extended.attr.max_wr = 1;
  extended.comp_mask = IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_CQ;
  extended.srq_type = IBV_SRQT_XRC;
  extended.pd = pd_;
  extended.cq = cq_;
  srq = ibv_create_srq_ex(context_, &extended);
  ASSERT_NE(srq, nullptr);
  EXPECT_EQ(static_cast<FakeSrq*>(srq)->init_attr.srq_type, IBV_SRQT_XRC);
  EXPECT_EQ(static_cast<FakeSrq*>(srq)->init_attr.cq, cq_);
  ibv_destroy_srq(srq);
}

}  // namespace
}  // namespace verbena::fake
