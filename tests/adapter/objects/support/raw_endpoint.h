// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <arpa/inet.h>

#include "adapter/objects/support/endpoint.h"
#include "adapter/objects/support/environment.h"
#include "wire/ethernet/frames.h"

namespace verbena::adapter::testing {

using ethernet::testing::Frame;

using Flow = std::unique_ptr<ibv_flow, Destroy<ibv_destroy_flow>>;
using Wq = std::unique_ptr<ibv_wq, Destroy<ibv_destroy_wq>>;
using RwqTable = std::unique_ptr<ibv_rwq_ind_table, Destroy<ibv_destroy_rwq_ind_table>>;
using Counters = std::unique_ptr<ibv_counters, Destroy<ibv_destroy_counters>>;

// Runs `body` in a namespace where rxe_near and rxe_far are the two ends of a veth pair.
inline void with_cable(const std::function<void()>& body) {
  isolated(body, [] {
    constexpr const char* kCable =
        "ip link add near type veth peer name far && ip addr add 10.47.0.1/24 dev near &&"
        " ip addr add 10.47.0.2/24 dev far && ip link set near up && ip link set far up &&"
        // Wait until both are up: packets sent before that are dropped.
        " timeout 10 sh -c 'until [ $(ip -o link show | grep -c \"state UP\") = 2 ]; do :; done'";
    if (std::system(kCable) != 0) throw std::runtime_error("no cable");  // NOLINT: the test's own process
  });
}

// A raw packet QP with its objects, and a buffer whose first slot is for sending.
struct RawEndpoint {
  static constexpr size_t kSlot = 2048;

  explicit RawEndpoint(const std::string& device, uint32_t create_flags = 0)
      : context(open_device(device)),
        pd(ibv_alloc_pd(context.get())),
        cq(ibv_create_cq(context.get(), 256, nullptr, nullptr, 0)) {
    ibv_qp_init_attr_ex attr{};
    attr.send_cq = attr.recv_cq = cq.get();
    attr.cap = {
        .max_send_wr = 64, .max_recv_wr = 64, .max_send_sge = 4, .max_recv_sge = 4, .max_inline_data = 64};
    attr.qp_type = IBV_QPT_RAW_PACKET;
    attr.sq_sig_all = 1;
    attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS;
    attr.pd = pd.get();
    attr.create_flags = create_flags;
    qp.reset(ibv_create_qp_ex(context.get(), &attr));
    if (qp == nullptr) throw std::runtime_error("no raw QP: " + std::to_string(errno));
    mr.reset(ibv_reg_mr(pd.get(), buffer.data(), buffer.size(), IBV_ACCESS_LOCAL_WRITE));
    ibv_qp_attr to{};
    to.port_num = 1;
    for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
      to.qp_state = state;
      EXPECT_EQ(ibv_modify_qp(qp.get(), &to, IBV_QP_STATE | (state == IBV_QPS_INIT ? IBV_QP_PORT : 0)), 0);
    }
  }

  // Steers UDP datagrams for `port` to the QP, on any link layer.
  Flow for_port(uint16_t port, uint16_t priority = 0, const std::vector<std::byte>& more = {},
                int more_specs = 0) {
    struct {
      ibv_flow_attr attr;
      ibv_flow_spec_tcp_udp udp;
      std::byte more[64];
    } rule{};
    rule.attr.num_of_specs = static_cast<uint8_t>(1 + more_specs);
    rule.attr.priority = priority;
    rule.attr.port = 1;
    rule.udp.type = IBV_FLOW_SPEC_UDP;
    rule.udp.size = sizeof rule.udp;
    rule.udp.val.dst_port = htons(port);
    rule.udp.mask.dst_port = 0xffff;
    std::copy(more.begin(), more.end(), rule.more);
    return Flow(ibv_create_flow(qp.get(), &rule.attr));
  }
  Flow of_type(ibv_flow_attr_type type) {
    ibv_flow_attr attr{};
    attr.type = type;
    attr.port = 1;
    return Flow(ibv_create_flow(qp.get(), &attr));
  }

  int send(const Frame& frame, unsigned flags = 0) {
    std::memcpy(buffer.data(), frame.data(), frame.size());
    return send_from(reinterpret_cast<uint64_t>(buffer.data()), frame.size(), mr->lkey, flags);
  }
  int send_from(uint64_t address, size_t bytes, uint32_t lkey, unsigned flags = 0) {
    ibv_sge sge{address, static_cast<uint32_t>(bytes), lkey};
    ibv_send_wr wr{};
    wr.wr_id = kSendId;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = flags;
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(qp.get(), &wr, &bad);
  }
  ibv_sge slot(size_t index) {
    return {reinterpret_cast<uint64_t>(buffer.data() + (index + 1) * kSlot), kSlot, mr->lkey};
  }
  void post_receives(size_t count) {
    for (size_t i = 0; i < count; ++i) {
      ibv_sge sge = slot(i);
      ibv_recv_wr wr{};
      wr.wr_id = i;
      wr.sg_list = &sge;
      wr.num_sge = 1;
      ibv_recv_wr* bad = nullptr;
      ASSERT_EQ(ibv_post_recv(qp.get(), &wr, &bad), 0);
    }
  }

  // Waits for the next completion.
  ibv_wc completion() {
    ibv_wc wc{};
    const bool came = eventually([&] { return ibv_poll_cq(cq.get(), 1, &wc) == 1; });
    EXPECT_TRUE(came) << "no completion";
    return wc;
  }
  void expect_sent() {
    const ibv_wc wc = completion();
    EXPECT_EQ(wc.wr_id, kSendId);
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  }
  // Returns the next frame received; empty if there is none.
  Frame received(ibv_wc* details = nullptr) {
    const ibv_wc wc = completion();
    if (details != nullptr) *details = wc;
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    if (wc.status != IBV_WC_SUCCESS || wc.wr_id == kSendId) return {};
    const std::byte* from = buffer.data() + (wc.wr_id + 1) * kSlot;
    return {from, from + wc.byte_len};
  }
  bool quiet() {
    ibv_wc wc{};
    return ibv_poll_cq(cq.get(), 1, &wc) == 0;
  }

  static constexpr uint64_t kSendId = 999;

  Context context;
  Pd pd;
  Cq cq;
  std::vector<std::byte> buffer = std::vector<std::byte>(kSlot * 65);
  Mr mr;
  Qp qp;
};

// Returns a frame with a UDP datagram to `port`, padded to Ethernet's minimum.
inline Frame datagram(uint16_t port, uint32_t payload = 40) {
  Frame frame = ethernet::testing::udp4(payload);
  store_be<uint16_t>(frame.data() + 36, port);
  return frame;
}

}  // namespace verbena::adapter::testing
