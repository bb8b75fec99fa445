// SPDX-License-Identifier: Apache-2.0
// Errors of calls about raw packets, by their man pages and the kernel's behavior.
#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "adapter/objects/support/raw_endpoint.h"

namespace verbena::adapter::testing {
namespace {

// Runs `body` with a raw endpoint on loopback, which has Ethernet frames.
template <class Body>
void with_endpoint(Body body) {
  isolated([&] {
    RawEndpoint endpoint("rxe_lo");
    body(endpoint);
  });
}

template <class Object>
int error_of(Object* made) {
  return made == nullptr ? errno : 0;
}

ibv_wq_init_attr wq_attributes(const RawEndpoint& endpoint, uint32_t max_wr) {
  ibv_wq_init_attr attr{};
  attr.max_wr = max_wr;
  attr.max_sge = 1;
  attr.pd = endpoint.pd.get();
  attr.cq = endpoint.cq.get();
  return attr;
}

// Drops a capability, as in an unprivileged process.
void drop_capability(uint32_t which) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2]{};
  ASSERT_EQ(::syscall(SYS_capget, &header, data), 0);
  data[which / 32].effective &= ~(1u << which % 32);
  ASSERT_EQ(::syscall(SYS_capset, &header, data), 0);
}

TEST(RawErrors, QpNeedsTheCapability) {
  isolated([] {
    const Context context = open_device("rxe_lo");
    const Pd pd(ibv_alloc_pd(context.get()));
    const Cq cq(ibv_create_cq(context.get(), 4, nullptr, nullptr, 0));
    ibv_qp_init_attr attr{};
    attr.send_cq = attr.recv_cq = cq.get();
    attr.cap = {
        .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
    attr.qp_type = IBV_QPT_RAW_PACKET;
    drop_capability(CAP_NET_RAW);
    EXPECT_EQ(error_of(ibv_create_qp(pd.get(), &attr)), EPERM);
  });
}

struct QpRefusal {
  const char* name;
  int error;
  std::function<void(ibv_qp_init_attr_ex&)> change;
};

TEST(RawErrors, QpIsRefused) {
  with_endpoint([](RawEndpoint& endpoint) {
    const QpRefusal kRefusals[] = {
        {"no pd", EINVAL, [](auto& a) { a.comp_mask = 0; }},
        {"no send cq", EINVAL, [](auto& a) { a.send_cq = nullptr; }},
        {"no recv cq", EINVAL, [](auto& a) { a.recv_cq = nullptr; }},
        {"too many sends", EINVAL, [](auto& a) { a.cap.max_send_wr = UINT32_MAX; }},
        {"too many receives", EINVAL, [](auto& a) { a.cap.max_recv_wr = UINT32_MAX; }},
        {"too many send pieces", EINVAL, [](auto& a) { a.cap.max_send_sge = 0xffff; }},
        {"too many receive pieces", EINVAL, [](auto& a) { a.cap.max_recv_sge = 0xffff; }},
        {"flag that is not there", EOPNOTSUPP,
         [](auto& a) {
           a.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
           a.create_flags = IBV_QP_CREATE_SCATTER_FCS;
         }},
        {"table without hash", EINVAL, [](auto& a) { a.comp_mask |= IBV_QP_INIT_ATTR_IND_TABLE; }},
    };
    for (const QpRefusal& refusal : kRefusals) {
      ibv_qp_init_attr_ex attr{};
      attr.send_cq = attr.recv_cq = endpoint.cq.get();
      attr.cap = {
          .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
      attr.qp_type = IBV_QPT_RAW_PACKET;
      attr.comp_mask = IBV_QP_INIT_ATTR_PD;
      attr.pd = endpoint.pd.get();
      refusal.change(attr);
      EXPECT_EQ(error_of(ibv_create_qp_ex(endpoint.context.get(), &attr)), refusal.error) << refusal.name;
    }
  });
}

TEST(RawErrors, FlowsAreForRawQps) {
  with_endpoint([](RawEndpoint& endpoint) {
    for (const auto& [type, error] : {std::pair(IBV_QPT_RC, EINVAL), std::pair(IBV_QPT_UD, EOPNOTSUPP)}) {
      ibv_qp_init_attr attr{};
      attr.send_cq = attr.recv_cq = endpoint.cq.get();
      attr.cap = {
          .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
      attr.qp_type = type;
      const Qp qp(ibv_create_qp(endpoint.pd.get(), &attr));
      ibv_flow_attr rule{};
      rule.port = 1;
      EXPECT_EQ(error_of(ibv_create_flow(qp.get(), &rule)), error);
    }
    ibv_flow_attr wrong{};
    wrong.port = 2;
    EXPECT_EQ(error_of(ibv_create_flow(endpoint.qp.get(), &wrong)), EINVAL);
  });
}

TEST(RawErrors, QpWithFlowsIsBusy) {
  with_endpoint([](RawEndpoint& endpoint) {
    Flow flow = endpoint.of_type(IBV_FLOW_ATTR_ALL_DEFAULT);
    ASSERT_TRUE(flow);
    EXPECT_EQ(ibv_destroy_qp(endpoint.qp.get()), EBUSY);
    flow.reset();
  });
}

TEST(RawErrors, ContextTakesEverythingDownInOrder) {
  isolated([] {
    ibv_context* context = open_device("rxe_lo").release();
    ibv_pd* pd = ibv_alloc_pd(context);
    ibv_cq* cq = ibv_create_cq(context, 4, nullptr, nullptr, 0);
    ibv_qp_init_attr attr{};
    attr.send_cq = attr.recv_cq = cq;
    attr.cap = {
        .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
    attr.qp_type = IBV_QPT_RAW_PACKET;
    ibv_qp* qp = ibv_create_qp(pd, &attr);
    ASSERT_NE(qp, nullptr);
    for (const auto type : {IBV_FLOW_ATTR_ALL_DEFAULT, IBV_FLOW_ATTR_SNIFFER}) {
      ibv_flow_attr rule{};
      rule.type = type;
      rule.port = 1;
      EXPECT_NE(ibv_create_flow(qp, &rule), nullptr);
    }
    ibv_wq_init_attr of_wq{};
    of_wq.max_wr = 4;
    of_wq.max_sge = 1;
    of_wq.pd = pd;
    of_wq.cq = cq;
    ibv_wq* wq = ibv_create_wq(context, &of_wq);
    ibv_rwq_ind_table_init_attr of_table{};
    of_table.ind_tbl = &wq;
    EXPECT_NE(ibv_create_rwq_ind_table(context, &of_table), nullptr);
    ibv_counters_init_attr of_counters{};
    EXPECT_NE(ibv_create_counters(context, &of_counters), nullptr);
    EXPECT_EQ(ibv_close_device(context), 0);
  });
}

TEST(RawErrors, WorkQueueIsRefused) {
  with_endpoint([](RawEndpoint& endpoint) {
    struct Refusal {
      const char* name;
      int error;
      std::function<void(ibv_wq_init_attr&)> change;
    };
    const Refusal kRefusals[] = {
        {"no pd", EINVAL, [](auto& a) { a.pd = nullptr; }},
        {"no cq", EINVAL, [](auto& a) { a.cq = nullptr; }},
        {"other type", EINVAL, [](auto& a) { a.wq_type = static_cast<ibv_wq_type>(1); }},
        {"no room", EINVAL, [](auto& a) { a.max_wr = 0; }},
        {"too much room", EINVAL, [](auto& a) { a.max_wr = UINT32_MAX; }},
        {"too many pieces", EINVAL, [](auto& a) { a.max_sge = 1000; }},
        {"unknown mask", EOPNOTSUPP, [](auto& a) { a.comp_mask = IBV_WQ_INIT_ATTR_RESERVED; }},
        {"flag that is not there", EOPNOTSUPP,
         [](auto& a) {
           a.comp_mask = IBV_WQ_INIT_ATTR_FLAGS;
           a.create_flags = IBV_WQ_FLAGS_SCATTER_FCS;
         }},
    };
    for (const Refusal& refusal : kRefusals) {
      ibv_wq_init_attr attr = wq_attributes(endpoint, 4);
      refusal.change(attr);
      EXPECT_EQ(error_of(ibv_create_wq(endpoint.context.get(), &attr)), refusal.error) << refusal.name;
    }
  });
}

TEST(RawErrors, WorkQueueGoesFromStateToState) {
  with_endpoint([](RawEndpoint& endpoint) {
    ibv_wq_init_attr init = wq_attributes(endpoint, 4);
    const Wq wq(ibv_create_wq(endpoint.context.get(), &init));
    ASSERT_TRUE(wq);
    struct Step {
      ibv_wq_state to;
      int error;
    };
    constexpr Step kSteps[] = {{IBV_WQS_ERR, EINVAL}, {IBV_WQS_RDY, 0},         {IBV_WQS_RDY, 0},
                               {IBV_WQS_ERR, 0},      {IBV_WQS_RDY, EINVAL},    {IBV_WQS_RESET, 0},
                               {IBV_WQS_RDY, 0},      {IBV_WQS_UNKNOWN, EINVAL}};
    ibv_wq_state now = IBV_WQS_RESET;
    for (const Step& step : kSteps) {
      ibv_wq_attr attr{};
      attr.attr_mask = IBV_WQ_ATTR_STATE | IBV_WQ_ATTR_CURR_STATE;
      attr.wq_state = step.to;
      attr.curr_wq_state = now;
      EXPECT_EQ(ibv_modify_wq(wq.get(), &attr), step.error) << now << " to " << step.to;
      if (step.error == 0) now = step.to;
      EXPECT_EQ(wq->state, now);
    }
    ibv_wq_attr wrong{};
    wrong.attr_mask = IBV_WQ_ATTR_CURR_STATE;
    wrong.curr_wq_state = IBV_WQS_RESET;
    EXPECT_EQ(ibv_modify_wq(wq.get(), &wrong), EINVAL) << "it is in another";
    wrong.attr_mask = IBV_WQ_ATTR_RESERVED;
    EXPECT_EQ(ibv_modify_wq(wq.get(), &wrong), EINVAL);
    wrong.attr_mask = IBV_WQ_ATTR_FLAGS;
    wrong.flags_mask = IBV_WQ_FLAGS_DELAY_DROP;
    EXPECT_EQ(ibv_modify_wq(wq.get(), &wrong), EOPNOTSUPP);
  });
}

TEST(RawErrors, ReceivesAreRefused) {
  with_endpoint([](RawEndpoint& endpoint) {
    ibv_wq_init_attr init = wq_attributes(endpoint, 2);
    const Wq wq(ibv_create_wq(endpoint.context.get(), &init));
    ASSERT_TRUE(wq);
    ibv_sge sges[] = {endpoint.slot(0), endpoint.slot(1)};
    ibv_recv_wr wr{};
    wr.sg_list = sges;
    wr.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    EXPECT_EQ(ibv_post_wq_recv(wq.get(), &wr, &bad), EINVAL) << "not in RESET";
    EXPECT_EQ(bad, &wr);
    ibv_wq_attr ready{};
    ready.attr_mask = IBV_WQ_ATTR_STATE;
    ready.wq_state = IBV_WQS_RDY;
    ASSERT_EQ(ibv_modify_wq(wq.get(), &ready), 0);
    wr.num_sge = 2;
    EXPECT_EQ(ibv_post_wq_recv(wq.get(), &wr, &bad), EINVAL);
    wr.num_sge = 1;
    EXPECT_EQ(ibv_post_wq_recv(wq.get(), &wr, &bad), 0);
    EXPECT_EQ(ibv_post_wq_recv(wq.get(), &wr, &bad), 0);
    EXPECT_EQ(ibv_post_wq_recv(wq.get(), &wr, &bad), ENOMEM);
    ready.wq_state = IBV_WQS_ERR;
    ASSERT_EQ(ibv_modify_wq(wq.get(), &ready), 0);
    for (int i = 0; i < 2; ++i) EXPECT_EQ(endpoint.completion().status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(ibv_post_wq_recv(wq.get(), &wr, &bad), 0);
    EXPECT_EQ(endpoint.completion().status, IBV_WC_WR_FLUSH_ERR) << "posted in ERR";
  });
}

TEST(RawErrors, ScalingIsRefused) {
  with_endpoint([](RawEndpoint& endpoint) {
    ibv_wq_init_attr init = wq_attributes(endpoint, 4);
    const Wq wq(ibv_create_wq(endpoint.context.get(), &init));
    ibv_wq* entries[] = {wq.get(), nullptr};
    ibv_rwq_ind_table_init_attr of_table{};
    of_table.ind_tbl = entries;
    of_table.log_ind_tbl_size = 1;
    EXPECT_EQ(error_of(ibv_create_rwq_ind_table(endpoint.context.get(), &of_table)), EINVAL) << "a hole";
    of_table.log_ind_tbl_size = 40;
    EXPECT_EQ(error_of(ibv_create_rwq_ind_table(endpoint.context.get(), &of_table)), EINVAL) << "too large";
    of_table.log_ind_tbl_size = 0;
    const RwqTable table(ibv_create_rwq_ind_table(endpoint.context.get(), &of_table));
    ASSERT_TRUE(table);

    struct Refusal {
      const char* name;
      int error;
      std::function<void(ibv_qp_init_attr_ex&)> change;
    };
    const Refusal kRefusals[] = {
        {"other function", EOPNOTSUPP, [](auto& a) { a.rx_hash_conf.rx_hash_function = 2; }},
        {"short key", EINVAL, [](auto& a) { a.rx_hash_conf.rx_hash_key_len = 39; }},
        {"no key", EINVAL, [](auto& a) { a.rx_hash_conf.rx_hash_key = nullptr; }},
        {"unknown field", EOPNOTSUPP,
         [](auto& a) { a.rx_hash_conf.rx_hash_fields_mask = IBV_RX_HASH_INNER; }},
        {"both IPs", EINVAL,
         [](auto& a) { a.rx_hash_conf.rx_hash_fields_mask = IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV6; }},
        {"both transports", EINVAL,
         [](auto& a) {
           a.rx_hash_conf.rx_hash_fields_mask = IBV_RX_HASH_SRC_PORT_TCP | IBV_RX_HASH_DST_PORT_UDP;
         }},
        {"queues of its own", EINVAL, [](auto& a) { a.cap.max_recv_wr = 1; }},
        {"no table", EINVAL, [](auto& a) { a.rwq_ind_tbl = nullptr; }},
        {"nothing wrong", 0, [](auto&) {}},
    };
    uint8_t key[40]{};
    for (const Refusal& refusal : kRefusals) {
      ibv_qp_init_attr_ex attr{};
      attr.qp_type = IBV_QPT_RAW_PACKET;
      attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH;
      attr.pd = endpoint.pd.get();
      attr.rwq_ind_tbl = table.get();
      attr.rx_hash_conf = {IBV_RX_HASH_FUNC_TOEPLITZ, sizeof key, key, IBV_RX_HASH_SRC_IPV4};
      refusal.change(attr);
      ibv_qp* made = ibv_create_qp_ex(endpoint.context.get(), &attr);
      EXPECT_EQ(error_of(made), refusal.error) << refusal.name;
      if (made == nullptr) continue;
      ibv_sge sge = endpoint.slot(0);
      ibv_recv_wr wr{};
      wr.sg_list = &sge;
      wr.num_sge = 1;
      ibv_recv_wr* bad = nullptr;
      EXPECT_NE(ibv_post_recv(made, &wr, &bad), 0) << "it has no queue";
      EXPECT_EQ(ibv_destroy_qp(made), 0);
    }
  });
}

TEST(RawErrors, CountersAreRefused) {
  with_endpoint([](RawEndpoint& endpoint) {
    ibv_counters_init_attr init{};
    init.comp_mask = 1;
    EXPECT_EQ(error_of(ibv_create_counters(endpoint.context.get(), &init)), EOPNOTSUPP);
    init.comp_mask = 0;
    const Counters counters(ibv_create_counters(endpoint.context.get(), &init));
    ASSERT_TRUE(counters);
    ibv_counter_attach_attr attach{};
    std::memset(static_cast<void*>(&attach.counter_desc), 7, sizeof attach.counter_desc);
    EXPECT_EQ(ibv_attach_counters_point_flow(counters.get(), &attach, nullptr), EOPNOTSUPP);
    attach = {IBV_COUNTER_BYTES, 0, 1};
    EXPECT_EQ(ibv_attach_counters_point_flow(counters.get(), &attach, nullptr), EOPNOTSUPP);
    const Flow flow = endpoint.of_type(IBV_FLOW_ATTR_ALL_DEFAULT);
    attach.comp_mask = 0;
    EXPECT_EQ(ibv_attach_counters_point_flow(counters.get(), &attach, flow.get()), EOPNOTSUPP);
    uint64_t value = 0;
    EXPECT_EQ(ibv_read_counters(counters.get(), &value, 1, 2), EINVAL);
  });
}

TEST(RawErrors, RateLimitsAreForRawQpsThatSend) {
  with_endpoint([](RawEndpoint& endpoint) {
    ibv_qp_rate_limit_attr limit{};
    limit.rate_limit = 1'000'000;
    EXPECT_EQ(ibv_modify_qp_rate_limit(endpoint.qp.get(), &limit), 0);
    limit.comp_mask = 1;
    EXPECT_EQ(ibv_modify_qp_rate_limit(endpoint.qp.get(), &limit), EINVAL);
    limit.comp_mask = 0;
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTS;
    attr.rate_limit = 2'000'000;
    EXPECT_EQ(ibv_modify_qp(endpoint.qp.get(), &attr, IBV_QP_STATE | IBV_QP_RATE_LIMIT), 0);
    ibv_qp_init_attr init{};
    ASSERT_EQ(ibv_query_qp(endpoint.qp.get(), &attr, IBV_QP_STATE, &init), 0);
    EXPECT_EQ(attr.rate_limit, 2'000'000u);
    attr.qp_state = IBV_QPS_RESET;
    ASSERT_EQ(ibv_modify_qp(endpoint.qp.get(), &attr, IBV_QP_STATE), 0);
    EXPECT_EQ(ibv_modify_qp_rate_limit(endpoint.qp.get(), &limit), EINVAL) << "it does not send yet";

    ibv_qp_init_attr of_rc{};
    of_rc.send_cq = of_rc.recv_cq = endpoint.cq.get();
    of_rc.cap = {
        .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
    of_rc.qp_type = IBV_QPT_RC;
    const Qp rc(ibv_create_qp(endpoint.pd.get(), &of_rc));
    EXPECT_EQ(ibv_modify_qp_rate_limit(rc.get(), &limit), EOPNOTSUPP);
  });
}

TEST(RawErrors, FlowActionsNeedAnAccelerator) {
  with_endpoint([](RawEndpoint& endpoint) {
    ibv_flow_action_esp_attr attr{};
    EXPECT_EQ(error_of(ibv_create_flow_action_esp(endpoint.context.get(), &attr)), EOPNOTSUPP);
  });
}

TEST(RawErrors, DeviceSaysWhatItCan) {
  with_endpoint([](RawEndpoint& endpoint) {
    ibv_device_attr_ex attr{};
    ASSERT_EQ(ibv_query_device_ex(endpoint.context.get(), nullptr, &attr), 0);
    EXPECT_NE(attr.orig_attr.device_cap_flags & IBV_DEVICE_MANAGED_FLOW_STEERING, 0);
    EXPECT_EQ(attr.rss_caps.supported_qpts, 1u << IBV_QPT_RAW_PACKET);
    EXPECT_EQ(attr.rss_caps.rx_hash_function, IBV_RX_HASH_FUNC_TOEPLITZ);
    EXPECT_GE(attr.rss_caps.max_rwq_indirection_table_size, 128u);
    EXPECT_GT(attr.max_wq_type_rq, 0u);
    EXPECT_EQ(attr.raw_packet_caps,
              static_cast<uint32_t>(IBV_RAW_PACKET_CAP_CVLAN_STRIPPING | IBV_RAW_PACKET_CAP_IP_CSUM));
  });
}

}  // namespace
}  // namespace verbena::adapter::testing
