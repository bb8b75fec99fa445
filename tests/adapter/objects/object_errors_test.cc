// SPDX-License-Identifier: Apache-2.0
// Errors of bad arguments, object by object: the errno values of rdma-core with the kernel.
#include <algorithm>
#include <climits>
#include <cstring>
#include <functional>

#include <sys/mman.h>

#include "adapter/objects/support/endpoint.h"

namespace verbena::adapter::testing {
namespace {

// A context, a protection domain and a CQ for calls with wrong arguments.
class ObjectErrors : public ::testing::Test {
 protected:
  void SetUp() override {
    context = open_device();
    ASSERT_NE(context, nullptr);
    pd.reset(ibv_alloc_pd(context.get()));
    cq.reset(ibv_create_cq(context.get(), 16, nullptr, nullptr, 0));
    gid_index = find_gid(context.get());
    ASSERT_GE(gid_index, 0);
  }

  Context context;
  Pd pd;
  Cq cq;
  int gid_index = -1;
};

TEST_F(ObjectErrors, RegisteringMemory) {
  struct Case {
    const char* what;
    size_t length;
    unsigned access;
    int error;  // 0: success
  };
  const Case cases[] = {
      {"nothing", 0, 0, EINVAL},
      {"to be read locally", 4096, 0, 0},
      {"everything", 4096, kAllAccess | IBV_ACCESS_MW_BIND, 0},
      {"remote read alone", 4096, IBV_ACCESS_REMOTE_READ, 0},
      {"remote write without local write", 4096, IBV_ACCESS_REMOTE_WRITE, EINVAL},
      {"remote atomics without local write", 4096, IBV_ACCESS_REMOTE_ATOMIC, EINVAL},
      {"paging on demand", 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND, 0},
      {"paging of huge pages", 4096, IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB, 0},
      {"paging on demand, wrapping around", SIZE_MAX, IBV_ACCESS_ON_DEMAND, EINVAL},
      {"relaxed ordering, which is optional", 4096, kAllAccess | IBV_ACCESS_RELAXED_ORDERING, 0},
      {"an unknown right", 4096, 1u << 19, EINVAL},
      {"wrapping around", SIZE_MAX, 0, EINVAL},
  };
  alignas(4096) static std::byte memory[4096];
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    errno = 0;
    Mr mr(ibv_reg_mr(pd.get(), memory, c.length, static_cast<int>(c.access)));
    EXPECT_EQ(mr == nullptr ? errno : 0, c.error);
    if (mr == nullptr) continue;
    EXPECT_EQ(mr->addr, memory);
    EXPECT_EQ(mr->length, c.length);
    EXPECT_EQ(mr->pd, pd.get());
    EXPECT_EQ(mr->context, context.get());
  }
}

TEST_F(ObjectErrors, RegisteringMemoryThatIsNotThere) {
  void* hole = ::mmap(nullptr, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(hole, MAP_FAILED);
  EXPECT_EQ(ibv_reg_mr(pd.get(), hole, 4096, 0), nullptr);
  EXPECT_EQ(errno, EFAULT);
  ASSERT_EQ(::mprotect(hole, 8192, PROT_READ), 0);
  {
    Mr readable(ibv_reg_mr(pd.get(), hole, 4096, IBV_ACCESS_REMOTE_READ));
    EXPECT_NE(readable, nullptr);
  }
  EXPECT_EQ(ibv_reg_mr(pd.get(), hole, 4096, IBV_ACCESS_LOCAL_WRITE), nullptr);
  EXPECT_EQ(errno, EFAULT);
  ASSERT_EQ(::munmap(static_cast<std::byte*>(hole) + 4096, 4096), 0);
  EXPECT_EQ(ibv_reg_mr(pd.get(), hole, 8192, 0), nullptr);
  EXPECT_EQ(errno, EFAULT);
  ::munmap(hole, 4096);
}

TEST_F(ObjectErrors, KeysDoNotComeAgain) {
  std::vector<uint32_t> keys;
  std::byte memory[64];
  for (int i = 0; i < 1000; ++i) {
    Mr mr(ibv_reg_mr(pd.get(), memory, sizeof memory, 0));
    ASSERT_NE(mr, nullptr);
    keys.push_back(mr->lkey);
  }
  std::sort(keys.begin(), keys.end());
  EXPECT_EQ(std::adjacent_find(keys.begin(), keys.end()), keys.end());
}

TEST_F(ObjectErrors, CreatingCompletionQueues) {
  ibv_device_attr device{};
  ASSERT_EQ(ibv_query_device(context.get(), &device), 0);
  struct Case {
    const char* what;
    int cqe;
    int vector;
    int error;
  };
  const Case cases[] = {
      {"one entry", 1, 0, 0},
      {"as many as the device says", device.max_cqe, 0, 0},
      {"the last vector", 16, context->num_comp_vectors - 1, 0},
      {"no entries", 0, 0, EINVAL},
      {"fewer", -1, 0, EINVAL},
      {"more than the device says", device.max_cqe + 1, 0, EINVAL},
      {"a vector too many", 16, context->num_comp_vectors, EINVAL},
      {"a negative vector", 16, -1, EINVAL},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    errno = 0;
    int context_of_it = 0;
    Cq made(ibv_create_cq(context.get(), c.cqe, &context_of_it, nullptr, c.vector));
    EXPECT_EQ(made == nullptr ? errno : 0, c.error);
    if (made == nullptr) continue;
    EXPECT_GE(made->cqe, c.cqe);
    EXPECT_EQ(made->cq_context, &context_of_it);
    EXPECT_EQ(made->channel, nullptr);
  }
}

TEST_F(ObjectErrors, ResizingCompletionQueues) {
  Endpoint endpoint({.cqe = 7});
  ibv_qp_attr attr = init_attributes(endpoint.options);
  ASSERT_EQ(ibv_modify_qp(endpoint.qp.get(), &attr, init_mask(IBV_QPT_RC)), 0);
  for (uint64_t i = 0; i < 5; ++i) ASSERT_EQ(endpoint.post_receive(i, endpoint.piece(0, 8)), 0);
  endpoint.modify_to(IBV_QPS_ERR);
  EXPECT_EQ(ibv_resize_cq(endpoint.cq.get(), 0), EINVAL);
  EXPECT_EQ(ibv_resize_cq(endpoint.cq.get(), INT_MAX), EINVAL);
  EXPECT_EQ(ibv_resize_cq(endpoint.cq.get(), 4), EINVAL) << "five entries are there";
  EXPECT_EQ(ibv_resize_cq(endpoint.cq.get(), 100), 0);
  EXPECT_GE(endpoint.cq->cqe, 100);
  EXPECT_EQ(ibv_resize_cq(endpoint.cq.get(), 5), 0);
  for (uint64_t i = 0; i < 5; ++i) EXPECT_EQ(endpoint.completion().wr_id, i);
  EXPECT_TRUE(endpoint.quiet());
}

TEST_F(ObjectErrors, CreatingQueuePairs) {
  ibv_device_attr device{};
  ASSERT_EQ(ibv_query_device(context.get(), &device), 0);
  const auto too_many = [](int most) { return static_cast<uint32_t>(most) + 1; };
  struct Case {
    const char* what;
    std::function<void(ibv_qp_init_attr&)> change;
    int error;
  };
  const Case cases[] = {
      {"RC", [](auto&) {}, 0},
      {"UD", [](auto& a) { a.qp_type = IBV_QPT_UD; }, 0},
      {"no send CQ", [](auto& a) { a.send_cq = nullptr; }, EINVAL},
      {"no receive CQ", [](auto& a) { a.recv_cq = nullptr; }, EINVAL},
      {"too many sends", [&](auto& a) { a.cap.max_send_wr = too_many(device.max_qp_wr); }, EINVAL},
      {"too many receives", [&](auto& a) { a.cap.max_recv_wr = too_many(device.max_qp_wr); }, EINVAL},
      {"too long a gather list", [&](auto& a) { a.cap.max_send_sge = too_many(device.max_sge); }, EINVAL},
      {"too long a scatter list", [&](auto& a) { a.cap.max_recv_sge = too_many(device.max_sge); }, EINVAL},
      {"too much inline", [](auto& a) { a.cap.max_inline_data = 1 << 20; }, EINVAL},
      {"an unknown service", [](auto& a) { a.qp_type = static_cast<ibv_qp_type>(77); }, EOPNOTSUPP},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq.get();
    init.qp_type = IBV_QPT_RC;
    init.cap = {
        .max_send_wr = 10, .max_recv_wr = 10, .max_send_sge = 3, .max_recv_sge = 3, .max_inline_data = 60};
    c.change(init);
    const ibv_qp_cap wanted = init.cap;
    errno = 0;
    Qp qp(ibv_create_qp(pd.get(), &init));
    EXPECT_EQ(qp == nullptr ? errno : 0, c.error);
    if (qp == nullptr) continue;
    EXPECT_GE(init.cap.max_send_wr, wanted.max_send_wr);
    EXPECT_GE(init.cap.max_recv_wr, wanted.max_recv_wr);
    EXPECT_GE(init.cap.max_send_sge, wanted.max_send_sge);
    EXPECT_GE(init.cap.max_recv_sge, wanted.max_recv_sge);
    EXPECT_GE(init.cap.max_inline_data, wanted.max_inline_data);
    EXPECT_EQ(qp->state, IBV_QPS_RESET);
    EXPECT_EQ(qp->qp_type, init.qp_type);
  }
}

TEST_F(ObjectErrors, ObjectsOfAnotherContextAreRefused) {
  Context other = open_device();
  Cq foreign_cq(ibv_create_cq(other.get(), 4, nullptr, nullptr, 0));
  ibv_qp_init_attr init{};
  init.send_cq = cq.get();
  init.recv_cq = foreign_cq.get();
  init.qp_type = IBV_QPT_RC;
  EXPECT_EQ(ibv_create_qp(pd.get(), &init), nullptr);
  EXPECT_EQ(errno, EINVAL);
  Channel foreign_channel(ibv_create_comp_channel(other.get()));
  EXPECT_EQ(ibv_create_cq(context.get(), 4, nullptr, foreign_channel.get(), 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(ObjectErrors, CreatingAddressHandles) {
  struct Case {
    const char* what;
    std::function<void(ibv_ah_attr&)> change;
    int error;
  };
  const Case cases[] = {
      {"to oneself", [](auto&) {}, 0},
      {"without a global route", [](auto& a) { a.is_global = 0; }, EINVAL},
      {"port 0", [](auto& a) { a.port_num = 0; }, EINVAL},
      {"port 2", [](auto& a) { a.port_num = 2; }, EINVAL},
      {"an empty source GID", [](auto& a) { a.grh.sgid_index = 200; }, EINVAL},
      {"to nowhere", [](auto& a) { std::memset(&a.grh.dgid, 0, sizeof a.grh.dgid); }, EINVAL},
      {"from IPv4 to IPv6", [](auto& a) { a.grh.dgid.raw[0] = 0xfd; }, EINVAL},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    ibv_ah_attr attr{};
    attr.is_global = 1;
    attr.port_num = 1;
    attr.grh.sgid_index = static_cast<uint8_t>(gid_index);
    ASSERT_EQ(ibv_query_gid(context.get(), 1, gid_index, &attr.grh.dgid), 0);
    c.change(attr);
    errno = 0;
    Ah ah(ibv_create_ah(pd.get(), &attr));
    EXPECT_EQ(ah == nullptr ? errno : 0, c.error);
  }
}

TEST_F(ObjectErrors, Queries) {
  ibv_port_attr port{};
  EXPECT_EQ(ibv_query_port(context.get(), 0, &port), EINVAL);
  EXPECT_EQ(ibv_query_port(context.get(), 2, &port), EINVAL);
  ASSERT_EQ(ibv_query_port(context.get(), 1, &port), 0);
  EXPECT_EQ(port.state, IBV_PORT_ACTIVE);
  EXPECT_EQ(port.phys_state, 5);
  EXPECT_EQ(port.link_layer, IBV_LINK_LAYER_ETHERNET);
  EXPECT_EQ(port.active_mtu, IBV_MTU_4096);

  ibv_gid gid;
  EXPECT_EQ(ibv_query_gid(context.get(), 2, 0, &gid), -1);
  EXPECT_EQ(ibv_query_gid(context.get(), 1, -1, &gid), -1);
  EXPECT_EQ(ibv_query_gid(context.get(), 1, port.gid_tbl_len, &gid), -1);
  EXPECT_EQ(errno, EINVAL);
  const ibv_gid nothing{};
  EXPECT_EQ(ibv_query_gid(context.get(), 1, port.gid_tbl_len - 1, &gid), 0);
  EXPECT_EQ(std::memcmp(&gid, &nothing, sizeof gid), 0);

  __be16 pkey = 0;
  EXPECT_EQ(ibv_query_pkey(context.get(), 1, 0, &pkey), 0);
  EXPECT_EQ(pkey, 0xffff);
  EXPECT_EQ(ibv_query_pkey(context.get(), 1, port.pkey_tbl_len, &pkey), -1);
  EXPECT_EQ(errno, EINVAL);
}

}  // namespace
}  // namespace verbena::adapter::testing
