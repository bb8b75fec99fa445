// SPDX-License-Identifier: Apache-2.0
// UD through the C ABI.
#include <algorithm>
#include <cstring>

#include <arpa/inet.h>
#include <netinet/ip.h>

#include "adapter/objects/support/endpoint.h"
#include "adapter/objects/support/environment.h"

namespace verbena::adapter::testing {
namespace {

constexpr size_t kGrh = 40;

class UdAddressing : public ::testing::TestWithParam<bool> {
 protected:
  static Options options(bool ipv4) { return {.type = IBV_QPT_UD, .ipv4 = ipv4}; }
};

TEST_P(UdAddressing, ArrivesBehindAGlobalRouteHeader) {
  const bool ipv4 = GetParam();
  Pair pair(options(ipv4));
  fill_random(pair.a.bytes(), 3);
  ASSERT_EQ(pair.b.post_receive(1, pair.b.piece(0, 2048)), 0);
  const ibv_sge pieces[] = {pair.a.piece(0, 700), pair.a.piece(700, 301)};
  ibv_send_wr request = send_request(2);
  request.opcode = IBV_WR_SEND_WITH_IMM;
  request.imm_data = 0x12345678;
  ASSERT_EQ(pair.a.post_send(request, pieces), 0);
  EXPECT_EQ(pair.a.completion().status, IBV_WC_SUCCESS);
  const ibv_wc wc = pair.b.completion();
  ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.byte_len, kGrh + 1001);
  EXPECT_EQ(wc.wc_flags, static_cast<unsigned>(IBV_WC_GRH | IBV_WC_WITH_IMM));
  EXPECT_EQ(wc.imm_data, 0x12345678u);
  EXPECT_EQ(wc.src_qp, pair.a.qp->qp_num);
  EXPECT_EQ(wc.sl, ipv4 ? 2 : 1);
  EXPECT_EQ(std::memcmp(pair.b.buffer() + kGrh, pair.a.buffer(), 1001), 0);

  // An address handle to the sender can be made from the completion.
  ibv_ah_attr back{};
  auto* grh = reinterpret_cast<ibv_grh*>(pair.b.buffer());
  ibv_wc copy = wc;
  ASSERT_EQ(ibv_init_ah_from_wc(pair.b.context.get(), 1, &copy, grh, &back), 0);
  const Address sender = pair.a.address();
  EXPECT_EQ(std::memcmp(&back.grh.dgid, &sender.gid, 16), 0);
  Ah ah(ibv_create_ah_from_wc(pair.b.pd.get(), &copy, grh, 1));
  EXPECT_NE(ah, nullptr);
}

INSTANTIATE_TEST_SUITE_P(Ip, UdAddressing, ::testing::Bool(),
                         [](const auto& ipv4) { return ipv4.param ? "V4" : "V6"; });

TEST(UdTraffic, OneQueuePairTalksToMany) {
  Endpoint receiver({.type = IBV_QPT_UD});
  receiver.connect(receiver.address());
  std::vector<std::unique_ptr<Endpoint>> senders;
  for (uint64_t i = 0; i < 5; ++i) {
    ASSERT_EQ(receiver.post_receive(i, receiver.piece(i * 256, 256)), 0);
    senders.push_back(std::make_unique<Endpoint>(Options{.type = IBV_QPT_UD}));
    senders.back()->connect(receiver.address());
    ASSERT_EQ(senders.back()->post_send(send_request(i, IBV_SEND_SIGNALED | IBV_SEND_INLINE), {}), 0);
  }
  std::vector<uint32_t> sources, expected;
  for (auto& sender : senders) expected.push_back(sender->qp->qp_num);
  for (int i = 0; i < 5; ++i) sources.push_back(receiver.completion().src_qp);
  std::sort(sources.begin(), sources.end());
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(sources, expected);
}

TEST(UdTraffic, DropsWhatDoesNotBelong) {
  Pair pair({.type = IBV_QPT_UD});
  const ibv_sge piece = pair.a.piece(0, 8);
  ASSERT_EQ(pair.a.post_send(send_request(1), {&piece, 1}),
            0);  // no receive is posted: lost without an error
  EXPECT_EQ(pair.a.completion().status, IBV_WC_SUCCESS);

  ASSERT_EQ(pair.b.post_receive(2, pair.b.piece(0, 256)), 0);
  ibv_send_wr wrong = send_request(3);
  wrong.sg_list = const_cast<ibv_sge*>(&piece);
  wrong.num_sge = 1;
  wrong.wr.ud.ah = pair.a.ah.get();
  wrong.wr.ud.remote_qpn = pair.b.qp->qp_num;
  wrong.wr.ud.remote_qkey = kQkey + 1;
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(pair.a.qp.get(), &wrong, &bad), 0);
  EXPECT_EQ(pair.a.completion().status, IBV_WC_SUCCESS);
  ASSERT_EQ(pair.a.post_send(send_request(4), {&piece, 1}), 0);
  EXPECT_EQ(pair.a.completion().status, IBV_WC_SUCCESS);
  const ibv_wc wc = pair.b.completion();  // the last datagram, and the only one received
  EXPECT_EQ(wc.wr_id, 2u);
  EXPECT_EQ(wc.byte_len, kGrh + 8);
  EXPECT_TRUE(pair.b.quiet());
}

TEST(UdTraffic, IsOnePacketAtMost) {
  Pair pair({.type = IBV_QPT_UD});
  ASSERT_EQ(pair.b.post_receive(1, pair.b.piece(0, 8192)), 0);
  const ibv_sge fits = pair.a.piece(0, 4096);  // the port's MTU: loopback's is large
  ASSERT_EQ(pair.a.post_send(send_request(2), {&fits, 1}), 0);
  EXPECT_EQ(pair.a.completion().status, IBV_WC_SUCCESS);
  EXPECT_EQ(pair.b.completion().byte_len, kGrh + 4096);
  const ibv_sge too_long = pair.a.piece(0, 4097);
  ASSERT_EQ(pair.a.post_send(send_request(3), {&too_long, 1}), 0);
  EXPECT_EQ(pair.a.completion().status, IBV_WC_LOC_LEN_ERR);
}

}  // namespace
}  // namespace verbena::adapter::testing
