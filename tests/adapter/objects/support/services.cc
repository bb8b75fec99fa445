// SPDX-License-Identifier: Apache-2.0
#include "adapter/objects/support/services.h"

#include "base/time.h"

namespace verbena::adapter::testing {

ibv_wc next_completion(ibv_cq* cq) {
  ibv_wc wc{};
  wc.status = IBV_WC_GENERAL_ERR;
  int found = 0;
  const auto deadline = MonotonicClock::now() + std::chrono::seconds(10);
  while (found == 0 && MonotonicClock::now() < deadline) found = ibv_poll_cq(cq, 1, &wc);
  EXPECT_EQ(found, 1) << "no completion within ten seconds";
  return wc;
}

Bench::Bench() : buffer(1 << 16) {
  context = open_device();
  pd.reset(ibv_alloc_pd(context.get()));
  cq.reset(ibv_create_cq(context.get(), 256, nullptr, nullptr, 0));
  mr.reset(ibv_reg_mr(pd.get(), buffer.data(), buffer.size(), static_cast<int>(kAllAccess)));
  gid_index_ = find_gid(context.get());
  EXPECT_EQ(ibv_query_gid(context.get(), 1, gid_index_, &gid_), 0);
}

Qp Bench::make_qp(ibv_qp_type type, ibv_srq* srq) {
  ibv_qp_init_attr_ex init{};
  init.qp_type = type;
  init.send_cq = init.recv_cq = cq.get();
  init.srq = srq;
  init.cap = {
      .max_send_wr = 64, .max_recv_wr = 64, .max_send_sge = 4, .max_recv_sge = 4, .max_inline_data = 64};
  init.sq_sig_all = 1;
  init.pd = pd.get();
  init.comp_mask = IBV_QP_INIT_ATTR_PD;
  return Qp(ibv_create_qp_ex(context.get(), &init));
}

Qp Bench::make_target(ibv_xrcd* xrcd) {
  ibv_qp_init_attr_ex init{};
  init.qp_type = IBV_QPT_XRC_RECV;
  init.comp_mask = IBV_QP_INIT_ATTR_XRCD;
  init.xrcd = xrcd;
  return Qp(ibv_create_qp_ex(context.get(), &init));
}

Srq Bench::make_srq(uint32_t requests, uint32_t limit) {
  ibv_srq_init_attr init{};
  init.attr = {.max_wr = requests, .max_sge = 4, .srq_limit = 0};
  Srq srq(ibv_create_srq(pd.get(), &init));
  if (srq != nullptr && limit != 0) {
    ibv_srq_attr attr{.max_wr = 0, .max_sge = 0, .srq_limit = limit};
    EXPECT_EQ(ibv_modify_srq(srq.get(), &attr, IBV_SRQ_LIMIT), 0);
  }
  return srq;
}

Srq Bench::make_xrc_srq(ibv_xrcd* xrcd, ibv_cq* completions, uint32_t requests) {
  ibv_srq_init_attr_ex init{};
  init.attr = {.max_wr = requests, .max_sge = 4, .srq_limit = 0};
  init.comp_mask =
      IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
  init.srq_type = IBV_SRQT_XRC;
  init.pd = pd.get();
  init.xrcd = xrcd;
  init.cq = completions;
  return Srq(ibv_create_srq_ex(context.get(), &init));
}

Xrcd Bench::make_domain(int fd, int flags) {
  ibv_xrcd_init_attr init{};
  init.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  init.fd = fd;
  init.oflags = flags;
  return Xrcd(ibv_open_xrcd(context.get(), &init));
}

void Bench::connect(ibv_qp* qp, uint32_t peer_qpn) {
  const ibv_qp_type type = qp->qp_type;
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = kAllAccess;
  ASSERT_EQ(ibv_modify_qp(qp, &attr, init_mask(type)), 0);

  attr = {};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = peer_qpn;
  attr.rq_psn = kFirstPsn;
  attr.max_dest_rd_atomic = 4;
  attr.min_rnr_timer = 1;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.grh.dgid = gid_;
  attr.ah_attr.grh.sgid_index = static_cast<uint8_t>(gid_index_);
  attr.ah_attr.grh.hop_limit = 64;
  // XRC initiators and targets both get the attributes that RC needs, as programs set them.
  const bool reliable = type != IBV_QPT_UC;
  int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  if (reliable) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  ASSERT_EQ(ibv_modify_qp(qp, &attr, mask), 0);

  attr = {};
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = 14;
  attr.retry_cnt = attr.rnr_retry = 7;
  attr.sq_psn = kFirstPsn;
  attr.max_rd_atomic = 4;
  mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
  if (reliable) mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  ASSERT_EQ(ibv_modify_qp(qp, &attr, mask), 0);
}

int Bench::post_receive(ibv_srq* srq, uint64_t wr_id, ibv_sge piece) {
  ibv_recv_wr request{};
  request.wr_id = wr_id;
  request.sg_list = &piece;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  const int error = ibv_post_srq_recv(srq, &request, &bad);
  if (error != 0) {
    EXPECT_EQ(bad, &request);
  }
  return error;
}

int Bench::post(ibv_qp* qp, ibv_send_wr request, ibv_sge piece) {
  request.sg_list = &piece;
  request.num_sge = 1;
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(qp, &request, &bad);
}

ibv_send_wr send_to(uint64_t wr_id, uint32_t srq_number) {
  ibv_send_wr request = send_request(wr_id);
  request.qp_type.xrc.remote_srqn = srq_number;
  return request;
}

}  // namespace verbena::adapter::testing
