// SPDX-License-Identifier: Apache-2.0
// Raw Ethernet through the C ABI, over a veth pair.
#include <sys/wait.h>
#include <unistd.h>

#include "adapter/objects/support/raw_endpoint.h"
#include "wire/ethernet/offloads.h"
#include "wire/ethernet/steering.h"

namespace verbena::adapter::testing {
namespace {

using ethernet::testing::FrameBuilder;

template <class Spec>
std::vector<std::byte> as_bytes(const Spec& spec) {
  const auto* from = reinterpret_cast<const std::byte*>(&spec);
  return {from, from + sizeof spec};
}

TEST(RawTraffic, FrameGoesWhereARuleSteersIt) {
  with_cable([] {
    RawEndpoint near("rxe_near"), one("rxe_far"), other("rxe_far");
    const Flow first = one.for_port(1001), second = other.for_port(1002);
    ASSERT_TRUE(first && second);
    one.post_receives(4);
    other.post_receives(4);
    for (const uint16_t port : std::initializer_list<uint16_t>{1002, 1003, 1001}) {
      ASSERT_EQ(near.send(datagram(port)), 0);
      near.expect_sent();
    }
    ibv_wc wc{};
    EXPECT_EQ(one.received(&wc), datagram(1001));
    EXPECT_EQ(wc.qp_num, one.qp->qp_num);
    EXPECT_EQ(wc.opcode, IBV_WC_RECV);
    EXPECT_EQ(other.received(), datagram(1002));
    EXPECT_TRUE(one.quiet() && other.quiet()) << "nobody asked for port 1003";
  });
}

TEST(RawTraffic, WithoutARuleNothingArrives) {
  with_cable([] {
    RawEndpoint near("rxe_near"), far("rxe_far"), witness("rxe_far");
    const Flow all = witness.of_type(IBV_FLOW_ATTR_ALL_DEFAULT);
    far.post_receives(4);
    witness.post_receives(64);
    ASSERT_EQ(near.send(datagram(1)), 0);
    while (witness.received() != datagram(1)) ASSERT_FALSE(::testing::Test::HasFailure());
    EXPECT_TRUE(far.quiet());
  });
}

TEST(RawTraffic, RuleThatIsGoneSteersNoMore) {
  with_cable([] {
    RawEndpoint near("rxe_near"), far("rxe_far");
    Flow one = far.for_port(1), other = far.for_port(2);
    far.post_receives(8);
    one.reset();
    ASSERT_EQ(near.send(datagram(1)), 0);
    ASSERT_EQ(near.send(datagram(2)), 0);
    EXPECT_EQ(far.received(), datagram(2));
  });
}

TEST(RawTraffic, PriorityDecides) {
  with_cable([] {
    RawEndpoint near("rxe_near"), late("rxe_far"), early("rxe_far");
    const Flow first = late.for_port(7, 5), second = early.for_port(7, 4);
    late.post_receives(2);
    early.post_receives(2);
    ASSERT_EQ(near.send(datagram(7)), 0);
    EXPECT_EQ(early.received(), datagram(7));
    EXPECT_TRUE(late.quiet());
  });
}

// Frames reach the other QPs of their device, as with a network adapter.
TEST(RawTraffic, FramesLoopBackToOthersOnTheDevice) {
  with_cable([] {
    RawEndpoint sender("rxe_near"), receiver("rxe_near"), far("rxe_far");
    const Flow own = sender.for_port(5), others = receiver.for_port(5), there = far.for_port(5);
    sender.post_receives(2);
    receiver.post_receives(2);
    far.post_receives(2);
    ASSERT_EQ(sender.send(datagram(5)), 0);
    EXPECT_EQ(receiver.received(), datagram(5));
    EXPECT_EQ(far.received(), datagram(5)) << "it leaves by the device all the same";
    sender.expect_sent();
    EXPECT_TRUE(sender.quiet()) << "one's own frames do not come back";
  });
}

TEST(RawTraffic, FramesReachOtherProcessesOnTheDevice) {
  with_cable([] {
    RawEndpoint far("rxe_near");
    const Flow rule = far.for_port(6);
    far.post_receives(2);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      RawEndpoint sender("rxe_near");
      const bool sent = sender.send(datagram(6)) == 0 && sender.completion().status == IBV_WC_SUCCESS;
      std::_Exit(sent ? 0 : 1);
    }
    EXPECT_EQ(far.received(), datagram(6));
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  });
}

TEST(RawTraffic, SnifferGetsACopyOfBothDirections) {
  with_cable([] {
    RawEndpoint near("rxe_near"), far("rxe_far"), sniffer("rxe_far");
    const Flow rule = far.for_port(1), all = sniffer.of_type(IBV_FLOW_ATTR_SNIFFER);
    ASSERT_TRUE(all);
    far.post_receives(2);
    sniffer.post_receives(64);
    ASSERT_EQ(near.send(datagram(1)), 0);
    ASSERT_EQ(far.received(), datagram(1)) << "the sniffer takes nothing away";
    ASSERT_EQ(far.send(datagram(2)), 0);
    bool in = false, out = false;
    while (!(in && out)) {
      const Frame frame = sniffer.received();
      ASSERT_FALSE(frame.empty());
      in |= frame == datagram(1);
      out |= frame == datagram(2);
    }
  });
}

TEST(RawTraffic, DropActionTakesFramesAway) {
  with_cable([] {
    ibv_flow_spec_action_drop drop{};
    drop.type = IBV_FLOW_SPEC_ACTION_DROP;
    drop.size = sizeof drop;
    RawEndpoint near("rxe_near"), far("rxe_far");
    const Flow dropping = far.for_port(3, 0, as_bytes(drop), 1), rest = far.for_port(3, 1),
               other = far.for_port(4, 1);
    ASSERT_TRUE(dropping);
    far.post_receives(4);
    ASSERT_EQ(near.send(datagram(3)), 0);
    ASSERT_EQ(near.send(datagram(4)), 0);
    EXPECT_EQ(far.received(), datagram(4));
  });
}

TEST(RawTraffic, CountersCountWhatARuleTakes) {
  with_cable([] {
    RawEndpoint near("rxe_near"), far("rxe_far");
    ibv_counters_init_attr init{};
    const Counters counters(ibv_create_counters(far.context.get(), &init));
    ASSERT_TRUE(counters);
    ibv_counter_attach_attr packets{IBV_COUNTER_PACKETS, 1, 0}, bytes{IBV_COUNTER_BYTES, 0, 0};
    ASSERT_EQ(ibv_attach_counters_point_flow(counters.get(), &packets, nullptr), 0);
    ASSERT_EQ(ibv_attach_counters_point_flow(counters.get(), &bytes, nullptr), 0);
    ibv_flow_spec_counter_action count{};
    count.type = IBV_FLOW_SPEC_ACTION_COUNT;
    count.size = sizeof count;
    count.counters = counters.get();
    const Flow rule = far.for_port(3, 0, as_bytes(count), 1);
    ASSERT_TRUE(rule);
    far.post_receives(4);
    uint64_t values[2] = {7, 7};
    ASSERT_EQ(ibv_read_counters(counters.get(), values, 2, 0), 0);
    EXPECT_EQ(values[0] + values[1], 0u);
    for (const uint32_t payload : {40, 50}) {
      ASSERT_EQ(near.send(datagram(3, payload)), 0);
      far.received();
    }
    ASSERT_EQ(ibv_read_counters(counters.get(), values, 2, IBV_READ_COUNTERS_ATTR_PREFER_CACHED), 0);
    EXPECT_EQ(values[1], 2u);
    EXPECT_EQ(values[0], datagram(3, 40).size() + datagram(3, 50).size());
    EXPECT_EQ(ibv_attach_counters_point_flow(counters.get(), &packets, nullptr), EBUSY);
    EXPECT_EQ(ibv_destroy_counters(counters.get()), EBUSY);
    EXPECT_EQ(ibv_read_counters(counters.get(), values, 1, 0), EINVAL)
        << "no room for what was attached at 1";
  });
}

TEST(RawTraffic, ChecksumsAreFilledInAndVouchedFor) {
  with_cable([] {
    RawEndpoint near("rxe_near"), far("rxe_far");
    const Flow rule = far.for_port(9);
    far.post_receives(4);
    ASSERT_EQ(near.send(datagram(9)), 0);
    ibv_wc wc{};
    EXPECT_EQ(far.received(&wc), datagram(9)) << "as it was: with no checksum at all";
    EXPECT_EQ(wc.wc_flags & IBV_WC_IP_CSUM_OK, 0u);
    ASSERT_EQ(near.send(datagram(9), IBV_SEND_IP_CSUM), 0);
    const Frame frame = far.received(&wc);
    EXPECT_NE(frame, datagram(9));
    EXPECT_TRUE(ethernet::checksums_good(frame, *ethernet::parse_headers(frame)));
    EXPECT_NE(wc.wc_flags & IBV_WC_IP_CSUM_OK, 0u);
  });
}

TEST(RawTraffic, VlanTagsAreMatchedAndStripped) {
  with_cable([] {
    const auto tagged = [](uint32_t tag) {
      return FrameBuilder().addresses().vlan(tag).half(0x88b5).fill(60).build();
    };
    const auto for_tag = [](RawEndpoint& endpoint, uint16_t tag) {
      struct {
        ibv_flow_attr attr;
        ibv_flow_spec_eth eth;
      } rule{};
      rule.attr.num_of_specs = 1;
      rule.attr.port = 1;
      rule.eth.type = IBV_FLOW_SPEC_ETH;
      rule.eth.size = sizeof rule.eth;
      rule.eth.val.vlan_tag = htons(tag);
      rule.eth.mask.vlan_tag = htons(0xfff);
      return Flow(ibv_create_flow(endpoint.qp.get(), &rule.attr));
    };
    RawEndpoint near("rxe_near"), keeps("rxe_far"), strips("rxe_far", IBV_QP_CREATE_CVLAN_STRIPPING);
    const Flow first = for_tag(keeps, 10), second = for_tag(strips, 11);
    ASSERT_TRUE(first && second);
    keeps.post_receives(2);
    strips.post_receives(2);
    for (const uint32_t tag : {12u, 11u, 10u}) ASSERT_EQ(near.send(tagged(0x2000 | tag)), 0);
    EXPECT_EQ(keeps.received(), tagged(0x2000 | 10));
    EXPECT_EQ(strips.received(), FrameBuilder().addresses().half(0x88b5).fill(60).build());
  });
}

TEST(RawTraffic, ExtendedCompletionTellsFlowTagAndStrippedVlanTag) {
  with_cable([] {
    RawEndpoint near("rxe_near"), far("rxe_far", IBV_QP_CREATE_CVLAN_STRIPPING);
    ibv_cq_init_attr_ex of_cq{};
    of_cq.cqe = 16;
    of_cq.wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_FLOW_TAG | IBV_WC_EX_WITH_CVLAN;
    ibv_cq_ex* cq = ibv_create_cq_ex(far.context.get(), &of_cq);
    ASSERT_NE(cq, nullptr);
    const Cq owner(ibv_cq_ex_to_cq(cq));
    ibv_qp_init_attr_ex init{};
    init.send_cq = init.recv_cq = owner.get();
    init.cap = {
        .max_send_wr = 1, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
    init.qp_type = IBV_QPT_RAW_PACKET;
    init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS;
    init.pd = far.pd.get();
    init.create_flags = IBV_QP_CREATE_CVLAN_STRIPPING;
    far.qp.reset(ibv_create_qp_ex(far.context.get(), &init));
    ASSERT_TRUE(far.qp);
    ibv_qp_attr to{};
    to.port_num = 1;
    to.qp_state = IBV_QPS_INIT;
    ASSERT_EQ(ibv_modify_qp(far.qp.get(), &to, IBV_QP_STATE | IBV_QP_PORT), 0);
    to.qp_state = IBV_QPS_RTR;
    ASSERT_EQ(ibv_modify_qp(far.qp.get(), &to, IBV_QP_STATE), 0);

    ibv_flow_spec_action_tag tag{};
    tag.type = IBV_FLOW_SPEC_ACTION_TAG;
    tag.size = sizeof tag;
    tag.tag_id = 0xabc123;
    Flow rule = far.for_port(2000, 0, as_bytes(tag), 1);
    ASSERT_TRUE(rule);
    far.post_receives(1);
    const Frame frame = FrameBuilder().addresses().vlan(0x6077).ipv4(17, 48).udp(40).build();
    ASSERT_EQ(near.send(frame), 0);
    ibv_poll_cq_attr poll{};
    ASSERT_TRUE(eventually([&] { return ibv_start_poll(cq, &poll) == 0; }));
    EXPECT_EQ(cq->status, IBV_WC_SUCCESS);
    EXPECT_EQ(ibv_wc_read_byte_len(cq), frame.size() - 4);
    EXPECT_EQ(ibv_wc_read_flow_tag(cq), 0xabc123u);
    EXPECT_EQ(ibv_wc_read_cvlan(cq), 0x6077);
    ibv_end_poll(cq);
    rule.reset();
    far.qp.reset();
  });
}

TEST(RawTraffic, ManyFramesArriveInOrder) {
  with_cable([] {
    RawEndpoint near("rxe_near"), far("rxe_far");
    const Flow rule = far.for_port(80);
    for (int round = 0; round < 20; ++round) {
      far.post_receives(32);
      for (uint32_t i = 0; i < 32; ++i) {
        ASSERT_EQ(near.send(datagram(80, 40 + i)), 0);
        near.expect_sent();
      }
      for (uint32_t i = 0; i < 32; ++i) ASSERT_EQ(far.received(), datagram(80, 40 + i));
    }
  });
}

// A network adapter would drop them; here the kernel buffers some thousands.
TEST(RawTraffic, FramesWaitForRequestsOfTheOnlyReceiver) {
  with_cable([] {
    RawEndpoint near("rxe_near"), far("rxe_far");
    const Flow rule = far.for_port(80);
    for (int round = 0; round < 3; ++round) {
      for (uint32_t i = 0; i < 40; ++i) {
        ASSERT_EQ(near.send(datagram(80, 40 + i)), 0);
        near.expect_sent();
        EXPECT_TRUE(far.quiet());
      }
      far.post_receives(40);
      for (uint32_t i = 0; i < 40; ++i) ASSERT_EQ(far.received(), datagram(80, 40 + i));
    }
  });
}

TEST(RawTraffic, WakesWhoWaitsForAnEvent) {
  with_cable([] {
    RawEndpoint near("rxe_near"), far("rxe_far");
    const Channel channel(ibv_create_comp_channel(far.context.get()));
    const Cq cq(ibv_create_cq(far.context.get(), 16, nullptr, channel.get(), 0));
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq.get();
    init.cap = {
        .max_send_wr = 1, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
    init.qp_type = IBV_QPT_RAW_PACKET;
    far.qp.reset(ibv_create_qp(far.pd.get(), &init));
    ASSERT_TRUE(far.qp);
    ibv_qp_attr to{};
    to.port_num = 1;
    to.qp_state = IBV_QPS_INIT;
    ASSERT_EQ(ibv_modify_qp(far.qp.get(), &to, IBV_QP_STATE | IBV_QP_PORT), 0);
    to.qp_state = IBV_QPS_RTR;
    ASSERT_EQ(ibv_modify_qp(far.qp.get(), &to, IBV_QP_STATE), 0);
    Flow rule = far.for_port(11);
    far.post_receives(1);
    // In the second round the frame arrives before the receive request that it waits for.
    for (const bool frame_first : {false, true}) {
      ASSERT_EQ(ibv_req_notify_cq(cq.get(), 0), 0);
      ASSERT_EQ(near.send(datagram(11)), 0);
      near.expect_sent();
      if (frame_first) far.post_receives(1);
      ibv_cq* which = nullptr;
      void* context = nullptr;
      ASSERT_EQ(ibv_get_cq_event(channel.get(), &which, &context), 0);
      ibv_ack_cq_events(which, 1);
      ibv_wc wc{};
      EXPECT_EQ(ibv_poll_cq(cq.get(), 1, &wc), 1);
      EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    }
    rule.reset();
    far.qp.reset();
  });
}

// ---- frames that cannot be sent

TEST(RawTraffic, BadFrameStopsTheSendQueueUntilItIsBroughtBack) {
  with_cable([] {
    struct Bad {
      size_t bytes;
      bool unmapped;
      ibv_wc_status status;
    };
    constexpr Bad kBad[] = {
        {13, false, IBV_WC_LOC_LEN_ERR}, {1515, false, IBV_WC_LOC_LEN_ERR}, {100, true, IBV_WC_LOC_PROT_ERR}};
    RawEndpoint near("rxe_near"), far("rxe_far");
    const Flow rule = far.for_port(80);
    far.post_receives(8);
    for (const Bad& bad : kBad) {
      ASSERT_EQ(near.send_from(reinterpret_cast<uint64_t>(near.buffer.data()), bad.bytes,
                               bad.unmapped ? near.mr->lkey ^ 0x100 : near.mr->lkey),
                0);
      EXPECT_EQ(near.completion().status, bad.status);
      ibv_qp_attr attr{};
      ibv_qp_init_attr init{};
      ASSERT_EQ(ibv_query_qp(near.qp.get(), &attr, IBV_QP_STATE, &init), 0);
      EXPECT_EQ(attr.qp_state, IBV_QPS_SQE);
      attr.qp_state = IBV_QPS_RTS;
      ASSERT_EQ(ibv_modify_qp(near.qp.get(), &attr, IBV_QP_STATE), 0);
      ASSERT_EQ(near.send(datagram(80)), 0);
      near.expect_sent();
      EXPECT_EQ(far.received(), datagram(80));
    }
  });
}

// ---- receive side scaling

TEST(RawTraffic, ScalingSpreadsFramesOverWorkQueues) {
  with_cable([] {
    constexpr uint32_t kQueues = 4;
    RawEndpoint near("rxe_near"), far("rxe_far");
    std::vector<Wq> wqs;
    std::vector<ibv_wq*> entries;
    ibv_wq_init_attr init{};
    init.wq_type = IBV_WQT_RQ;
    init.max_wr = 40;
    init.max_sge = 1;
    init.pd = far.pd.get();
    init.cq = far.cq.get();
    for (uint32_t i = 0; i < kQueues; ++i) {
      wqs.emplace_back(ibv_create_wq(far.context.get(), &init));
      ASSERT_TRUE(wqs.back());
      EXPECT_GE(init.max_wr, 40u);
      ibv_wq_attr ready{};
      ready.attr_mask = IBV_WQ_ATTR_STATE;
      ready.wq_state = IBV_WQS_RDY;
      ASSERT_EQ(ibv_modify_wq(wqs.back().get(), &ready), 0);
      entries.push_back(wqs.back().get());
      for (uint64_t n = 0; n < 40; ++n) {
        ibv_sge sge = far.slot(n);
        ibv_recv_wr wr{};
        wr.wr_id = n;
        wr.sg_list = &sge;
        wr.num_sge = 1;
        ibv_recv_wr* bad = nullptr;
        ASSERT_EQ(ibv_post_wq_recv(entries.back(), &wr, &bad), 0);
      }
    }
    ibv_rwq_ind_table_init_attr of_table{};
    of_table.log_ind_tbl_size = 2;
    of_table.ind_tbl = entries.data();
    RwqTable table(ibv_create_rwq_ind_table(far.context.get(), &of_table));
    ASSERT_TRUE(table);

    std::array<uint8_t, ethernet::kHashKeyBytes> key;
    for (size_t i = 0; i < key.size(); ++i) key[i] = static_cast<uint8_t>(i * 57 + 1);
    ibv_qp_init_attr_ex attr{};
    attr.qp_type = IBV_QPT_RAW_PACKET;
    attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH;
    attr.pd = far.pd.get();
    attr.rwq_ind_tbl = table.get();
    attr.rx_hash_conf = {IBV_RX_HASH_FUNC_TOEPLITZ, static_cast<uint8_t>(key.size()), key.data(),
                         IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_SRC_PORT_UDP};
    far.qp.reset(ibv_create_qp_ex(far.context.get(), &attr));
    ASSERT_TRUE(far.qp);
    EXPECT_EQ(ibv_destroy_rwq_ind_table(table.get()), EBUSY);
    EXPECT_EQ(ibv_destroy_wq(entries[0]), EBUSY);
    Flow rule = far.for_port(53);
    ASSERT_TRUE(rule);
    std::array<int, kQueues> hits{};
    for (uint16_t source = 1; source <= 100; ++source) {
      Frame frame = datagram(53);
      store_be<uint16_t>(frame.data() + 34, source);
      const uint32_t wanted =
          ethernet::receive_hash(key, ethernet::kHashSourceIpv4 | ethernet::kHashSourceUdp,
                                 ethernet::parse_headers(frame)->key) %
          kQueues;
      if (hits[wanted] == 40) continue;
      ++hits[wanted];
      ASSERT_EQ(near.send(frame), 0);
      near.expect_sent();
      ibv_wc wc{};
      EXPECT_EQ(far.received(&wc), frame);
      EXPECT_EQ(wc.qp_num, entries[wanted]->wq_num);
    }
    for (const int count : hits) EXPECT_GT(count, 5);
    rule.reset();
    far.qp.reset();
    table.reset();
  });
}

}  // namespace
}  // namespace verbena::adapter::testing
