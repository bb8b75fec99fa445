// SPDX-License-Identifier: Apache-2.0
// Unconnected identifiers: a SIDR lookup in place of a connection, and multicast.
#include <cerrno>
#include <vector>

#include "adapter/objects/support/environment.h"
#include "libraries/librdmacm/support/connection.h"

namespace verbena::rdmacm::testing {
namespace {

constexpr size_t kGrh = 40;

TEST(Datagrams, FindThePeersQpByALookup) {
  Listener listener(RDMA_PS_UDP);
  Caller caller(listener.port, RDMA_PS_UDP);
  caller.create_qp(IBV_QPT_UD);
  EXPECT_EQ(caller.id->qp->state, IBV_QPS_RTS);
  caller.connect("who");
  const Heard request = hear(listener.channel.get(), RDMA_CM_EVENT_CONNECT_REQUEST);
  EXPECT_EQ(request.data.size(), 180U);
  EXPECT_EQ(request.data.substr(0, 3), "who");
  const OwnId accepted(request.id);
  ibv_qp_init_attr attributes = small_qp(IBV_QPT_UD);
  ASSERT_EQ(rdma_create_qp(accepted.get(), nullptr, &attributes), 0) << std::strerror(errno);
  rdma_conn_param parameters = with_data("me");
  ASSERT_EQ(rdma_accept(accepted.get(), &parameters), 0) << std::strerror(errno);

  const Heard found = hear(caller.channel.get(), RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(found.data.size(), 136U);
  EXPECT_EQ(found.data.substr(0, 2), "me");
  EXPECT_EQ(found.datagram.qp_num, accepted->qp->qp_num);
  EXPECT_EQ(found.datagram.qkey, static_cast<uint32_t>(RDMA_UDP_QKEY));

  ibv_ah_attr to = found.datagram.ah_attr;
  ibv_ah* const handle = ibv_create_ah(caller.id->pd, &to);
  ASSERT_NE(handle, nullptr) << std::strerror(errno);
  std::string sent = "datagram", received(kGrh + 64, '\0');
  ibv_mr* const out = rdma_reg_msgs(caller.id.get(), sent.data(), sent.size());
  ibv_mr* const in = rdma_reg_msgs(accepted.get(), received.data(), received.size());
  ASSERT_EQ(rdma_post_recv(accepted.get(), nullptr, received.data(), received.size(), in), 0);
  ASSERT_EQ(rdma_post_ud_send(caller.id.get(), nullptr, sent.data(), sent.size(), out, IBV_SEND_SIGNALED,
                              handle, found.datagram.qp_num),
            0);
  ibv_wc wc{};
  ASSERT_EQ(rdma_get_recv_comp(accepted.get(), &wc), 1);
  EXPECT_EQ(received.substr(kGrh, wc.byte_len - kGrh), sent);
  rdma_dereg_mr(out);
  rdma_dereg_mr(in);
  ibv_destroy_ah(handle);
}

TEST(Datagrams, AreRefusedByALookup) {
  Listener listener(RDMA_PS_UDP);
  Caller caller(listener.port, RDMA_PS_UDP);
  caller.create_qp(IBV_QPT_UD);
  caller.connect();
  const OwnId request(hear(listener.channel.get(), RDMA_CM_EVENT_CONNECT_REQUEST).id);
  ASSERT_EQ(rdma_reject(request.get(), nullptr, 0), 0);
  EXPECT_EQ(hear(caller.channel.get(), RDMA_CM_EVENT_UNREACHABLE).status, 2);  // IB_SIDR_REJECT
}

struct Member {
  explicit Member(void* context = nullptr) : id(make_id(channel.get(), RDMA_PS_UDP)) {
    sockaddr_in address = ipv4("127.0.0.1", 0);
    resolve_to(channel.get(), id.get(), address);
    ibv_qp_init_attr attributes = small_qp(IBV_QPT_UD);
    EXPECT_EQ(rdma_create_qp(id.get(), nullptr, &attributes), 0) << std::strerror(errno);
    EXPECT_EQ(rdma_join_multicast(id.get(), generic(group), context), 0) << std::strerror(errno);
  }
  OwnChannel channel = make_channel();
  OwnId id;
  sockaddr_in group = ipv4("239.1.2.3", 0);
};

TEST(Multicast, ReachesTheMembersOfAGroup) {
  int context = 0;
  Member sender, receiver(&context);
  const Heard joined = hear(sender.channel.get(), RDMA_CM_EVENT_MULTICAST_JOIN);
  EXPECT_EQ(joined.datagram.qp_num, 0xffffffU);
  EXPECT_EQ(hear(receiver.channel.get(), RDMA_CM_EVENT_MULTICAST_JOIN).datagram.private_data, &context);
  ibv_ah_attr to = joined.datagram.ah_attr;
  ibv_ah* const handle = ibv_create_ah(sender.id->pd, &to);
  ASSERT_NE(handle, nullptr) << std::strerror(errno);
  std::string sent = "to all", received(kGrh + 64, '\0');
  ibv_mr* const out = rdma_reg_msgs(sender.id.get(), sent.data(), sent.size());
  ibv_mr* const in = rdma_reg_msgs(receiver.id.get(), received.data(), received.size());
  ASSERT_EQ(rdma_post_recv(receiver.id.get(), nullptr, received.data(), received.size(), in), 0);
  ASSERT_EQ(rdma_post_ud_send(sender.id.get(), nullptr, sent.data(), sent.size(), out, IBV_SEND_SIGNALED,
                              handle, joined.datagram.qp_num),
            0);
  ibv_wc wc{};
  ASSERT_EQ(rdma_get_recv_comp(receiver.id.get(), &wc), 1);
  EXPECT_EQ(received.substr(kGrh, wc.byte_len - kGrh), sent);
  EXPECT_EQ(rdma_leave_multicast(receiver.id.get(), generic(receiver.group)), 0) << std::strerror(errno);
  EXPECT_EQ(rdma_leave_multicast(receiver.id.get(), generic(receiver.group)), -1);
  EXPECT_EQ(errno, EADDRNOTAVAIL);
  rdma_dereg_mr(out);
  rdma_dereg_mr(in);
  ibv_destroy_ah(handle);
}

// A send-only member has no QP attached to the group; rdma_join_multicast_ex(3).
TEST(Multicast, CanBeSentToOnly) {
  const OwnChannel channel = make_channel();
  const OwnId id = make_id(channel.get(), RDMA_PS_UDP);
  sockaddr_in address = ipv4("127.0.0.1", 0), group = ipv4("239.1.2.4", 0);
  resolve_to(channel.get(), id.get(), address);
  ibv_qp_init_attr attributes = small_qp(IBV_QPT_UD);
  ASSERT_EQ(rdma_create_qp(id.get(), nullptr, &attributes), 0);
  rdma_cm_join_mc_attr_ex join{};
  join.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
  join.join_flags = RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER;
  join.addr = generic(group);
  ASSERT_EQ(rdma_join_multicast_ex(id.get(), &join, nullptr), 0) << std::strerror(errno);
  Heard joined = hear(channel.get(), RDMA_CM_EVENT_MULTICAST_JOIN);
  EXPECT_NE(ibv_detach_mcast(id->qp, &joined.datagram.ah_attr.grh.dgid, 0), 0) << "it was attached";
}

}  // namespace
}  // namespace verbena::rdmacm::testing
