// SPDX-License-Identifier: Apache-2.0
// Less common features of QPs: creation flags, paths and rates, ECE; and errors of bad arguments
// (ibv_create_qp_ex(3), ibv_modify_qp(3), ibv_modify_qp_rate_limit(3), ibv_set_ece(3), ibv_query_qp(3)).
#include <cstring>
#include <functional>

#include "adapter/objects/support/endpoint.h"

namespace verbena::adapter::testing {
namespace {

TEST(QpExtras, CreationChecksEachField) {
  Endpoint endpoint;
  ibv_rwq_ind_table* const no_table = nullptr;
  struct Case {
    const char* what;
    std::function<void(ibv_qp_init_attr_ex&)> change;
    int error;
  };
  const auto flags = [](uint32_t wanted) {
    return [wanted](ibv_qp_init_attr_ex& a) {
      a.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
      a.create_flags = wanted;
    };
  };
  const auto of_type = [](ibv_qp_type type, auto change) {
    return [=](ibv_qp_init_attr_ex& a) {
      a.qp_type = type;
      change(a);
    };
  };
  const Case cases[] = {
      {"the plain fields", [](auto&) {}, 0},
      {"no domain", [](auto& a) { a.comp_mask = IBV_QP_INIT_ATTR_CREATE_FLAGS; }, EINVAL},
      {"a domain that is null", [](auto& a) { a.pd = nullptr, a.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS; },
       EINVAL},
      {"unknown fields", [](auto& a) { a.comp_mask |= 1u << 20; }, EOPNOTSUPP},
      {"no flags", flags(0), 0},
      {"unknown flags", flags(1u << 30), EINVAL},
      {"no multicast to itself, over UD", of_type(IBV_QPT_UD, flags(IBV_QP_CREATE_BLOCK_SELF_MCAST_LB)), 0},
      {"no multicast to itself, over RC", flags(IBV_QP_CREATE_BLOCK_SELF_MCAST_LB), EOPNOTSUPP},
      {"another's QPN", of_type(IBV_QPT_UD, flags(IBV_QP_CREATE_SOURCE_QPN)), EOPNOTSUPP},
      {"frame check sequences", flags(IBV_QP_CREATE_SCATTER_FCS), EOPNOTSUPP},
      {"no header for segmentation", [](auto& a) { a.comp_mask |= IBV_QP_INIT_ATTR_MAX_TSO_HEADER; }, 0},
      {"a header for segmentation",
       [](auto& a) {
         a.comp_mask |= IBV_QP_INIT_ATTR_MAX_TSO_HEADER;
         a.max_tso_header = 14;
       },
       EOPNOTSUPP},
      {"an indirection table",
       [&](auto& a) {
         a.comp_mask |= IBV_QP_INIT_ATTR_IND_TABLE;
         a.rwq_ind_tbl = no_table;
       },
       EOPNOTSUPP},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    ibv_qp_init_attr_ex init{};
    init.send_cq = init.recv_cq = endpoint.cq.get();
    init.cap = endpoint.options.cap;
    init.qp_type = IBV_QPT_RC;
    init.pd = endpoint.pd.get();
    init.comp_mask = IBV_QP_INIT_ATTR_PD;
    c.change(init);
    errno = 0;
    Qp qp(ibv_create_qp_ex(endpoint.context.get(), &init));
    EXPECT_EQ(qp == nullptr ? errno : 0, c.error);
  }
}

TEST(QpExtras, ThereAreAsManyAsTheDeviceSaysAndThenNoMore) {
  Context context = open_device();
  ibv_device_attr device{};
  ASSERT_EQ(ibv_query_device(context.get(), &device), 0);
  Pd pd(ibv_alloc_pd(context.get()));
  Cq cq(ibv_create_cq(context.get(), 1, nullptr, nullptr, 0));
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq.get();
  init.qp_type = IBV_QPT_RC;
  std::vector<Qp> qps;
  const auto most = 2 * static_cast<size_t>(device.max_qp);
  while (qps.size() < most) {
    init.cap = {};
    Qp qp(ibv_create_qp(pd.get(), &init));
    if (qp == nullptr) break;
    qps.push_back(std::move(qp));
  }
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_GE(qps.size(), static_cast<size_t>(device.max_qp));
  EXPECT_LT(qps.size(), most);
  qps.pop_back();
  EXPECT_NE(Qp(ibv_create_qp(pd.get(), &init)), nullptr) << "there is room again";
}

TEST(QpExtras, PathsAndRatesAreAnsweredAsTheKernelDoes) {
  Pair pair;
  ibv_qp* qp = pair.a.qp.get();
  struct Case {
    const char* what;
    std::function<void(ibv_qp_attr&)> change;
    int mask;
    int error;
  };
  const Case cases[] = {
      {"nothing", [](auto&) {}, 0, 0},
      {"an alternate path, which RoCE has none of", [](auto& a) { a.alt_port_num = 1; }, IBV_QP_ALT_PATH,
       EINVAL},
      {"migrated", [](auto& a) { a.path_mig_state = IBV_MIG_MIGRATED; }, IBV_QP_PATH_MIG_STATE, 0},
      {"to be rearmed", [](auto& a) { a.path_mig_state = IBV_MIG_REARM; }, IBV_QP_PATH_MIG_STATE, 0},
      {"armed", [](auto& a) { a.path_mig_state = IBV_MIG_ARMED; }, IBV_QP_PATH_MIG_STATE, 0},
      {"no state of migration", [](auto& a) { a.path_mig_state = static_cast<ibv_mig_state>(3); },
       IBV_QP_PATH_MIG_STATE, EINVAL},
      {"a rate", [](auto& a) { a.rate_limit = 1000; }, IBV_QP_RATE_LIMIT, EOPNOTSUPP},
      {"bits without a meaning", [](auto&) {}, 1 << 30, EOPNOTSUPP},
      {"a Q_Key, which RC has none of", [](auto& a) { a.qkey = 1; }, IBV_QP_QKEY, EINVAL},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    ibv_qp_attr attr{};
    c.change(attr);
    EXPECT_EQ(ibv_modify_qp(qp, &attr, c.mask), c.error);
    if (c.error != 0 || c.mask != IBV_QP_PATH_MIG_STATE) continue;
    ibv_qp_attr found{};
    ibv_qp_init_attr init{};
    ASSERT_EQ(ibv_query_qp(qp, &found, IBV_QP_PATH_MIG_STATE, &init), 0);
    EXPECT_EQ(found.path_mig_state, attr.path_mig_state);
  }
  ibv_qp_rate_limit_attr rate{};
  rate.rate_limit = 1000;
  EXPECT_EQ(ibv_modify_qp_rate_limit(qp, &rate), EOPNOTSUPP);
  ibv_device_attr_ex device{};
  ASSERT_EQ(ibv_query_device_ex(pair.a.context.get(), nullptr, &device), 0);
  EXPECT_EQ(device.packet_pacing_caps.supported_qpts & (1u << IBV_QPT_RC), 0u) << "and says so";
}

TEST(QpExtras, EnhancedConnectionsAreAVendorsAndThereIsNone) {
  Endpoint endpoint;
  ibv_ece ece{.vendor_id = 0x1234, .options = 7, .comp_mask = 0};
  EXPECT_EQ(ibv_set_ece(endpoint.qp.get(), &ece), EOPNOTSUPP);
  EXPECT_EQ(ibv_query_ece(endpoint.qp.get(), &ece), EOPNOTSUPP);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

TEST(QpExtras, PromisesNoOrderWithinAMessage) {
  Endpoint endpoint;
  for (const ibv_wr_opcode opcode : {IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
    EXPECT_EQ(ibv_query_qp_data_in_order(endpoint.qp.get(), opcode, 0), 0);
  }
}

}  // namespace
}  // namespace verbena::adapter::testing
