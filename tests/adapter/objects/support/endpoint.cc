// SPDX-License-Identifier: Apache-2.0
#include "adapter/objects/support/endpoint.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "adapter/objects/support/environment.h"
#include "base/random.h"

namespace verbena::adapter::testing {
namespace {

constexpr uint32_t kPsn = 0xfffff0;  // close to the wrap of 24 bits

ibv_cq* create_extended_cq(Endpoint& endpoint) {
  ibv_cq_init_attr_ex attr{};
  attr.cqe = static_cast<uint32_t>(endpoint.options.cqe);
  attr.cq_context = &endpoint;
  attr.channel = endpoint.channel.get();
  attr.wc_flags = endpoint.options.fields;
  attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
  attr.flags = endpoint.options.cq_flags;
  ibv_cq_ex* made = ibv_create_cq_ex(endpoint.context.get(), &attr);
  return made != nullptr ? ibv_cq_ex_to_cq(made) : nullptr;
}

}  // namespace

Context open_device(const std::string& name) {
  ibv_context* opened = nullptr;
  int count = 0;
  // On a busy machine the agent may get no processor for longer than a call waits for it.
  for (int attempt = 0; attempt < 5 && opened == nullptr; ++attempt) {
    errno = 0;
    ibv_device** list = ibv_get_device_list(&count);
    for (int i = 0; i < count; ++i) {
      if (name == ibv_get_device_name(list[i])) opened = ibv_open_device(list[i]);
    }
    const int error = errno;
    if (list != nullptr) ibv_free_device_list(list);
    if (error != ETIMEDOUT) break;
  }
  if (opened == nullptr) {
    throw std::runtime_error(name + " not opened, among " + std::to_string(count) +
                             " devices: " + std::strerror(errno));
  }
  return Context(opened);
}

int find_gid(ibv_context* context, bool ipv4) {
  static constexpr uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  static constexpr uint8_t kNothing[16] = {};
  for (int index = 0; index < 16; ++index) {
    ibv_gid gid;
    if (ibv_query_gid(context, 1, index, &gid) != 0) break;
    if (std::memcmp(gid.raw, kNothing, 16) == 0) continue;
    if (gid.raw[0] == 0xfe && gid.raw[1] == 0x80)
      continue;  // the default GID, which may not be an assigned address
    if ((std::memcmp(gid.raw, kMapped, sizeof kMapped) == 0) == ipv4) return index;
  }
  return -1;
}

Endpoint::Endpoint(const Options& wanted) : options(wanted), buffer_(wanted.bytes) {
  context = open_device(options.device);
  pd.reset(ibv_alloc_pd(context.get()));
  EXPECT_NE(pd, nullptr);
  if (options.with_channel) channel.reset(ibv_create_comp_channel(context.get()));
  cq.reset(options.fields == 0 ? ibv_create_cq(context.get(), options.cqe, this, channel.get(), 0)
                               : create_extended_cq(*this));
  EXPECT_NE(cq, nullptr);
  mr.reset(ibv_reg_mr(pd.get(), buffer_.data(), buffer_.size(), static_cast<int>(options.access)));
  EXPECT_NE(mr, nullptr);
  ibv_qp_init_attr_ex init{};
  init.send_cq = init.recv_cq = cq.get();
  init.cap = options.cap;
  init.qp_type = options.type;
  init.sq_sig_all = options.signal_all ? 1 : 0;
  init.pd = pd.get();
  init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS;
  init.create_flags = options.create_flags;
  if (options.send_operations != 0) {
    init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    init.send_ops_flags = options.send_operations;
  }
  qp.reset(ibv_create_qp_ex(context.get(), &init));
  EXPECT_NE(qp, nullptr) << std::strerror(errno);
}

Address Endpoint::address() const {
  Address own;
  EXPECT_EQ(ibv_query_gid(context.get(), 1, find_gid(context.get(), options.ipv4), &own.gid), 0);
  own.qpn = qp->qp_num;
  own.psn = kPsn;
  own.rkey = mr->rkey;
  own.bytes = static_cast<uint32_t>(mr->length);
  own.buffer = reinterpret_cast<uint64_t>(mr->addr);
  return own;
}

void Endpoint::connect(const Address& to) {
  peer = to;
  ibv_qp_attr attr = init_attributes(options);
  ASSERT_EQ(ibv_modify_qp(qp.get(), &attr, init_mask(options.type)), 0);
  attr = rtr_attributes(*this, to);
  ASSERT_EQ(ibv_modify_qp(qp.get(), &attr, rtr_mask(options.type)), 0);
  ibv_ah_attr way = attr.ah_attr;
  attr = rts_attributes(*this);
  ASSERT_EQ(ibv_modify_qp(qp.get(), &attr, rts_mask(options.type)), 0);
  if (options.type != IBV_QPT_UD) return;
  ah.reset(ibv_create_ah(pd.get(), &way));
  ASSERT_NE(ah, nullptr);
}

ibv_sge Endpoint::piece(size_t offset, size_t length) const {
  return {reinterpret_cast<uint64_t>(mr->addr) + offset, static_cast<uint32_t>(length), mr->lkey};
}

int Endpoint::post_send(ibv_send_wr request, std::span<const ibv_sge> list) {
  request.sg_list = const_cast<ibv_sge*>(list.data());
  request.num_sge = static_cast<int>(list.size());
  if (options.type == IBV_QPT_UD) {
    request.wr.ud.ah = ah.get();
    request.wr.ud.remote_qpn = peer.qpn;
    request.wr.ud.remote_qkey = kQkey;
  }
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(qp.get(), &request, &bad);
}

int Endpoint::post_receive(uint64_t wr_id, std::span<const ibv_sge> list) {
  ibv_recv_wr request{};
  request.wr_id = wr_id;
  request.sg_list = const_cast<ibv_sge*>(list.data());
  request.num_sge = static_cast<int>(list.size());
  ibv_recv_wr* bad = nullptr;
  return ibv_post_recv(qp.get(), &request, &bad);
}

ibv_wc Endpoint::completion() {
  ibv_wc wc{};
  wc.status = IBV_WC_GENERAL_ERR;
  int found = 0;
  const auto deadline = MonotonicClock::now() + std::chrono::seconds(10);
  while (found == 0 && MonotonicClock::now() < deadline) found = ibv_poll_cq(cq.get(), 1, &wc);
  EXPECT_EQ(found, 1) << "no completion within ten seconds";
  return wc;
}

bool Endpoint::quiet() {
  ibv_wc wc;
  return ibv_poll_cq(cq.get(), 1, &wc) == 0;
}

ibv_qp_state Endpoint::state() const {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  EXPECT_EQ(ibv_query_qp(qp.get(), &attr, IBV_QP_STATE, &init), 0);
  return attr.qp_state;
}

void Endpoint::modify_to(ibv_qp_state state) {
  ibv_qp_attr attr{};
  attr.qp_state = state;
  EXPECT_EQ(ibv_modify_qp(qp.get(), &attr, IBV_QP_STATE), 0);
}

ibv_send_wr send_request(uint64_t wr_id, unsigned flags) {
  ibv_send_wr request{};
  request.wr_id = wr_id;
  request.opcode = IBV_WR_SEND;
  request.send_flags = flags;
  return request;
}

ibv_send_wr remote_request(ibv_wr_opcode opcode, uint64_t wr_id, const Address& peer, uint64_t offset,
                           unsigned flags) {
  ibv_send_wr request = send_request(wr_id, flags);
  request.opcode = opcode;
  if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    request.wr.atomic.remote_addr = peer.buffer + offset;
    request.wr.atomic.rkey = peer.rkey;
  } else {
    request.wr.rdma.remote_addr = peer.buffer + offset;
    request.wr.rdma.rkey = peer.rkey;
  }
  return request;
}

ibv_qp_attr init_attributes(const Options& options) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = options.access;
  attr.qkey = kQkey;
  return attr;
}

int init_mask(ibv_qp_type type) {
  return IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
         (type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
}

ibv_qp_attr rtr_attributes(const Endpoint& endpoint, const Address& peer) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = endpoint.options.mtu;
  attr.dest_qp_num = peer.qpn;
  attr.rq_psn = peer.psn;
  attr.max_dest_rd_atomic = endpoint.options.max_rd_atomic;
  attr.min_rnr_timer = 1;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.grh.dgid = peer.gid;
  attr.ah_attr.grh.sgid_index = static_cast<uint8_t>(find_gid(endpoint.context.get(), endpoint.options.ipv4));
  attr.ah_attr.grh.hop_limit = 64;
  return attr;
}

int rtr_mask(ibv_qp_type type) {
  if (type == IBV_QPT_UD) return IBV_QP_STATE;
  if (type == IBV_QPT_UC) return IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  return IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
         IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
}

ibv_qp_attr rts_attributes(const Endpoint& endpoint) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = endpoint.options.timeout;
  attr.retry_cnt = endpoint.options.retries;
  attr.rnr_retry = endpoint.options.rnr_retries;
  attr.sq_psn = kPsn;
  attr.max_rd_atomic = endpoint.options.max_rd_atomic;
  return attr;
}

int rts_mask(ibv_qp_type type) {
  if (type == IBV_QPT_UD || type == IBV_QPT_UC) return IBV_QP_STATE | IBV_QP_SQ_PSN;
  return IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
         IBV_QP_MAX_QP_RD_ATOMIC;
}

void fill_random(std::span<std::byte> bytes, uint64_t seed) {
  Random random(seed);
  size_t at = 0;
  while (at < bytes.size()) {
    const uint64_t word = random.next();
    const size_t some = std::min(sizeof word, bytes.size() - at);
    std::memcpy(bytes.data() + at, &word, some);
    at += some;
  }
}

}  // namespace verbena::adapter::testing
