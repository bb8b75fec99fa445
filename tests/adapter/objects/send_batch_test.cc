// SPDX-License-Identifier: Apache-2.0
// ibv_wr_*: requests built by function calls and posted together (ibv_wr_post(3)).
#include <cstring>
#include <functional>

#include "adapter/objects/support/endpoint.h"

namespace verbena::adapter::testing {
namespace {

constexpr uint64_t kRcOperations = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                                   IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
                                   IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
                                   IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
constexpr uint64_t kUdOperations = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;

ibv_qp_ex* extended(Endpoint& endpoint) {
  ibv_qp_ex* qp = ibv_qp_to_qp_ex(endpoint.qp.get());
  EXPECT_NE(qp, nullptr);
  if (qp != nullptr) qp->wr_flags = IBV_SEND_SIGNALED;
  return qp;
}

void set_sge(ibv_qp_ex* qp, const ibv_sge& sge) {
  ibv_wr_set_sge(qp, sge.lkey, sge.addr, sge.length);
}

TEST(SendBatch, AQueuePairMadeWithoutOperationsHasNoExtendedInterface) {
  Endpoint endpoint;
  EXPECT_EQ(ibv_qp_to_qp_ex(endpoint.qp.get()), nullptr);
}

TEST(SendBatch, AllRequestsOfABatchAreCarriedOutInOrder) {
  Pair pair({.send_operations = kRcOperations});
  Endpoint& a = pair.a;
  Endpoint& b = pair.b;
  fill_random(a.bytes(), 1);
  const uint64_t remote = b.address().buffer;
  const uint32_t rkey = b.mr->rkey;
  ASSERT_EQ(b.post_receive(100, b.piece(4096, 1000)), 0);
  ASSERT_EQ(b.post_receive(101, b.piece(8192, 1000)), 0);
  ASSERT_EQ(b.post_receive(102, b.piece(12288, 8)), 0);

  ibv_qp_ex* qp = extended(a);
  ibv_wr_start(qp);
  qp->wr_id = 1;
  ibv_wr_rdma_write(qp, rkey, remote);
  set_sge(qp, a.piece(0, 3000));
  qp->wr_id = 2;
  ibv_wr_send(qp);
  const ibv_sge pieces[] = {a.piece(0, 300), a.piece(1000, 700)};
  ibv_wr_set_sge_list(qp, 2, pieces);
  qp->wr_id = 3;
  ibv_wr_send_imm(qp, htobe32(33));
  set_sge(qp, a.piece(5000, 1000));
  qp->wr_id = 4;
  ibv_wr_rdma_write_imm(qp, rkey, remote + 16384, htobe32(44));
  set_sge(qp, a.piece(6000, 64));
  qp->wr_id = 5;
  ibv_wr_rdma_read(qp, rkey, remote);
  set_sge(qp, a.piece(32768, 3000));
  EXPECT_TRUE(a.quiet()) << "nothing happens before the batch is complete";
  ASSERT_EQ(ibv_wr_complete(qp), 0);

  const ibv_wc_opcode opcodes[] = {IBV_WC_RDMA_WRITE, IBV_WC_SEND, IBV_WC_SEND, IBV_WC_RDMA_WRITE,
                                   IBV_WC_RDMA_READ};
  for (uint64_t i = 0; i < 5; ++i) {
    const ibv_wc wc = a.completion();
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS) << i;
    EXPECT_EQ(wc.wr_id, i + 1);
    EXPECT_EQ(wc.opcode, opcodes[i]);
  }
  EXPECT_EQ(b.completion().byte_len, 1000u);
  EXPECT_EQ(b.completion().imm_data, htobe32(33));
  const ibv_wc written = b.completion();
  EXPECT_EQ(written.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(written.imm_data, htobe32(44));
  EXPECT_EQ(std::memcmp(b.buffer(), a.buffer(), 3000), 0);
  EXPECT_EQ(std::memcmp(b.buffer() + 4096, a.buffer(), 300), 0);
  EXPECT_EQ(std::memcmp(b.buffer() + 4396, a.buffer() + 1000, 700), 0);
  EXPECT_EQ(std::memcmp(b.buffer() + 8192, a.buffer() + 5000, 1000), 0);
  EXPECT_EQ(std::memcmp(b.buffer() + 16384, a.buffer() + 6000, 64), 0);
  EXPECT_EQ(std::memcmp(a.buffer() + 32768, a.buffer(), 3000), 0);
}

TEST(SendBatch, AtomicsGiveBackWhatWasThere) {
  Pair pair({.send_operations = kRcOperations});
  uint64_t start = 40;
  std::memcpy(pair.b.buffer(), &start, sizeof start);
  const uint64_t remote = pair.b.address().buffer;
  ibv_qp_ex* qp = extended(pair.a);
  ibv_wr_start(qp);
  ibv_wr_atomic_fetch_add(qp, pair.b.mr->rkey, remote, 2);
  set_sge(qp, pair.a.piece(0, 8));
  ibv_wr_atomic_cmp_swp(qp, pair.b.mr->rkey, remote, 42, 7);
  set_sge(qp, pair.a.piece(8, 64));  // only the first eight bytes are used
  ASSERT_EQ(ibv_wr_complete(qp), 0);
  EXPECT_EQ(pair.a.completion().byte_len, 8u);
  EXPECT_EQ(pair.a.completion().status, IBV_WC_SUCCESS);
  uint64_t values[3];
  std::memcpy(values, pair.a.buffer(), 16);
  std::memcpy(&values[2], pair.b.buffer(), 8);
  EXPECT_EQ(values[0], 40u);
  EXPECT_EQ(values[1], 42u);
  EXPECT_EQ(values[2], 7u);
}

// Otherwise 3000 bytes would be read from the ring, which has less room for inline data.
TEST(SendBatch, WhatIsSaidLastOfARequestsDataCounts) {
  Pair pair({.send_operations = kRcOperations});
  fill_random(pair.a.bytes(), 1);
  ibv_qp_ex* qp = extended(pair.a);
  char text[] = "inline";
  ibv_wr_start(qp);
  ibv_wr_rdma_write(qp, pair.b.mr->rkey, pair.b.address().buffer);
  ibv_wr_set_inline_data(qp, text, 6);
  set_sge(qp, pair.a.piece(0, 3000));
  ASSERT_EQ(ibv_wr_complete(qp), 0);
  EXPECT_EQ(pair.a.completion().status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(pair.b.buffer(), pair.a.buffer(), 3000), 0);
}

TEST(SendBatch, InlineDataMayBeChangedBeforeTheBatchIsComplete) {
  Pair pair({.send_operations = kRcOperations});
  ASSERT_EQ(pair.b.post_receive(1, pair.b.piece(0, 256)), 0);
  ASSERT_EQ(pair.b.post_receive(2, pair.b.piece(256, 256)), 0);
  char text[] = "inline";
  char more[] = "and more";
  const ibv_data_buf pieces[] = {{text, 6}, {more, 0}, {more, 8}};
  ibv_qp_ex* qp = extended(pair.a);
  ibv_wr_start(qp);
  ibv_wr_send(qp);
  ibv_wr_set_inline_data(qp, text, 6);
  ibv_wr_send(qp);
  ibv_wr_set_inline_data_list(qp, 3, pieces);
  std::memset(text, 'x', sizeof text);
  std::memset(more, 'x', sizeof more);
  ASSERT_EQ(ibv_wr_complete(qp), 0);
  EXPECT_EQ(pair.b.completion().byte_len, 6u);
  EXPECT_EQ(pair.b.completion().byte_len, 14u);
  EXPECT_EQ(std::memcmp(pair.b.buffer(), "inline", 6), 0);
  EXPECT_EQ(std::memcmp(pair.b.buffer() + 256, "inlineand more", 14), 0);
}

TEST(SendBatch, DatagramsGoWhereTheSetterSays) {
  Pair pair({.type = IBV_QPT_UD, .send_operations = kUdOperations});
  ASSERT_EQ(pair.b.post_receive(1, pair.b.piece(0, 256)), 0);
  ASSERT_EQ(pair.b.post_receive(2, pair.b.piece(256, 256)), 0);
  ibv_qp_ex* qp = extended(pair.a);
  ibv_wr_start(qp);
  ibv_wr_send(qp);
  ibv_wr_set_ud_addr(qp, pair.a.ah.get(), pair.b.qp->qp_num, kQkey);
  set_sge(qp, pair.a.piece(0, 100));
  ibv_wr_send_imm(qp, 5);
  set_sge(qp, pair.a.piece(0, 101));
  ibv_wr_set_ud_addr(qp, pair.a.ah.get(), pair.b.qp->qp_num, kQkey);
  ASSERT_EQ(ibv_wr_complete(qp), 0);
  EXPECT_EQ(pair.b.completion().byte_len, 140u);
  const ibv_wc second = pair.b.completion();
  EXPECT_EQ(second.byte_len, 141u);
  EXPECT_EQ(second.imm_data, 5u);
}

TEST(SendBatch, AbortForgetsIt) {
  Pair pair({.send_operations = kRcOperations});
  ibv_qp_ex* qp = extended(pair.a);
  ibv_wr_start(qp);
  for (int i = 0; i < 10; ++i) {
    ibv_wr_rdma_write(qp, pair.b.mr->rkey, pair.b.address().buffer);
    set_sge(qp, pair.a.piece(0, 8));
  }
  ibv_wr_abort(qp);
  EXPECT_TRUE(pair.a.quiet());
  ibv_wr_start(qp);
  EXPECT_EQ(ibv_wr_complete(qp), 0) << "an empty batch is no error";
  EXPECT_TRUE(pair.a.quiet());
}

// After one mistake nothing of the batch is posted; the next batch works.
TEST(SendBatch, TheFirstErrorIsToldAtTheEndAndNothingIsPosted) {
  Pair rc({.send_operations = kRcOperations & ~uint64_t{IBV_QP_EX_WITH_RDMA_READ}});
  Pair ud({.type = IBV_QPT_UD, .send_operations = kUdOperations});
  const uint64_t remote = rc.b.address().buffer;
  const uint32_t rkey = rc.b.mr->rkey;
  std::vector<ibv_sge> many(rc.a.options.cap.max_send_sge + 1, rc.a.piece(0, 1));
  std::vector<char> large(5000);
  const ibv_data_buf twice[] = {{large.data(), 1000}, {large.data(), SIZE_MAX - 999}};
  struct Case {
    const char* what;
    Pair& pair;
    std::function<void(ibv_qp_ex*)> mistake;
    int error;
  };
  const Case cases[] = {
      {"an operation that was not asked for", rc, [&](auto* qp) { ibv_wr_rdma_read(qp, rkey, remote); },
       EINVAL},
      {"segmentation", rc, [&](auto* qp) { ibv_wr_send_tso(qp, large.data(), 1, 1); }, EINVAL},
      {"an atomic into four bytes", rc,
       [&](auto* qp) {
         ibv_wr_atomic_fetch_add(qp, rkey, remote, 1);
         ibv_wr_set_sge(qp, rc.a.mr->lkey, rc.a.piece(0, 4).addr, 4);
       },
       EINVAL},
      {"too long a list", rc,
       [&](auto* qp) {
         ibv_wr_send(qp);
         ibv_wr_set_sge_list(qp, many.size(), many.data());
       },
       ENOSPC},
      {"too much inline", rc,
       [&](auto* qp) {
         ibv_wr_send(qp);
         ibv_wr_set_inline_data(qp, large.data(), large.size());
       },
       ENOSPC},
      {"so much inline that the sum wraps", rc,
       [&](auto* qp) {
         ibv_wr_send(qp);
         ibv_wr_set_inline_data_list(qp, 2, twice);
       },
       ENOSPC},
      {"an atomic's result inline", rc,
       [&](auto* qp) {
         ibv_wr_atomic_fetch_add(qp, rkey, remote, 1);
         ibv_wr_set_inline_data(qp, large.data(), 8);
       },
       EINVAL},
      {"inline from nowhere", rc,
       [&](auto* qp) {
         ibv_wr_send(qp);
         ibv_wr_set_inline_data(qp, reinterpret_cast<void*>(8), 64);
       },
       EFAULT},
      {"four gigabytes", rc,
       [&](auto* qp) {
         ibv_wr_send(qp);
         ibv_wr_set_sge(qp, rc.a.mr->lkey, 0, UINT32_MAX);
       },
       EINVAL},
      {"a datagram's address over RC", rc,
       [&](auto* qp) {
         ibv_wr_send(qp);
         ibv_wr_set_ud_addr(qp, ud.a.ah.get(), 1, 1);
       },
       EINVAL},
      {"an XRC SRQ over RC", rc,
       [&](auto* qp) {
         ibv_wr_send(qp);
         ibv_wr_set_xrc_srqn(qp, 1);
       },
       EINVAL},
      {"more than the queue holds", rc,
       [&](auto* qp) {
         for (uint32_t i = 0; i <= rc.a.options.cap.max_send_wr; ++i) ibv_wr_send(qp);
       },
       ENOMEM},
      {"a datagram without an address", ud, [&](auto* qp) { ibv_wr_send(qp); }, EINVAL},
      {"a datagram without an address before another", ud,
       [&](auto* qp) {
         ibv_wr_send(qp);
         ibv_wr_send(qp);
         ibv_wr_set_ud_addr(qp, ud.a.ah.get(), ud.b.qp->qp_num, kQkey);
       },
       EINVAL},
      {"a datagram to no address", ud,
       [&](auto* qp) {
         ibv_wr_send(qp);
         ibv_wr_set_ud_addr(qp, nullptr, 1, kQkey);
       },
       EINVAL},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    Endpoint& a = c.pair.a;
    const auto send = [&](ibv_qp_ex* qp) {
      ibv_wr_send(qp);
      if (a.options.type == IBV_QPT_UD) ibv_wr_set_ud_addr(qp, a.ah.get(), c.pair.b.qp->qp_num, kQkey);
      set_sge(qp, a.piece(0, 8));
    };
    ibv_qp_ex* qp = extended(a);
    ibv_wr_start(qp);
    send(qp);
    c.mistake(qp);
    send(qp);
    EXPECT_EQ(ibv_wr_complete(qp), c.error);
    EXPECT_TRUE(a.quiet());
    ASSERT_EQ(c.pair.b.post_receive(1, c.pair.b.piece(0, 64)), 0);
    ibv_wr_start(qp);
    send(qp);
    EXPECT_EQ(ibv_wr_complete(qp), 0);
    EXPECT_EQ(a.completion().status, IBV_WC_SUCCESS);
    EXPECT_EQ(c.pair.b.completion().status, IBV_WC_SUCCESS);
    EXPECT_TRUE(a.quiet());
  }
}

TEST(SendBatch, DependsOnTheState) {
  Endpoint endpoint({.send_operations = kRcOperations});
  ibv_qp_ex* qp = extended(endpoint);
  const auto post = [&] {
    ibv_wr_start(qp);
    ibv_wr_send(qp);
    set_sge(qp, endpoint.piece(0, 8));
    return ibv_wr_complete(qp);
  };
  EXPECT_EQ(post(), EINVAL);  // RESET
  ibv_qp_attr attr = init_attributes(endpoint.options);
  ASSERT_EQ(ibv_modify_qp(endpoint.qp.get(), &attr, init_mask(IBV_QPT_RC)), 0);
  EXPECT_EQ(post(), EINVAL);  // INIT
  endpoint.modify_to(IBV_QPS_ERR);
  EXPECT_EQ(post(), 0);
  EXPECT_EQ(endpoint.completion().status, IBV_WC_WR_FLUSH_ERR);
}

TEST(SendBatch, CallsOutsideOfABatchDoNothing) {
  Pair pair({.send_operations = kRcOperations});
  ibv_qp_ex* qp = extended(pair.a);
  ibv_wr_send(qp);
  set_sge(qp, pair.a.piece(0, 8));
  EXPECT_EQ(ibv_wr_complete(qp), EINVAL);
  ibv_wr_abort(qp);
  EXPECT_TRUE(pair.a.quiet());
}

// While a thread has a batch open, other calls on the QP and its failure do not block.
TEST(SendBatch, AnOpenBatchHoldsNobodyUp) {
  Pair pair({.send_operations = kRcOperations});
  ibv_qp_ex* qp = extended(pair.a);
  ibv_wr_start(qp);
  ibv_wr_rdma_write(qp, pair.b.mr->rkey, pair.b.address().buffer);
  set_sge(qp, pair.a.piece(0, 8));
  pair.a.modify_to(IBV_QPS_ERR);
  EXPECT_TRUE(pair.a.quiet());
  ibv_gid gid;
  EXPECT_EQ(ibv_query_gid(pair.a.context.get(), 1, 0, &gid), 0);
  EXPECT_EQ(ibv_wr_complete(qp), 0);
  EXPECT_EQ(pair.a.completion().status, IBV_WC_WR_FLUSH_ERR);
}

TEST(SendBatch, CreationRefusesOperationsThatTheServiceDoesNotHave) {
  Endpoint endpoint;
  struct Case {
    ibv_qp_type type;
    uint64_t operations;
    int error;
  };
  const Case cases[] = {
      {IBV_QPT_RC, kRcOperations, 0},
      {IBV_QPT_UD, kUdOperations, 0},
      {IBV_QPT_RC, 0, 0},
      {IBV_QPT_RC, IBV_QP_EX_WITH_TSO, EOPNOTSUPP},
      {IBV_QPT_RC, 1ull << 40, EOPNOTSUPP},
      {IBV_QPT_UD, IBV_QP_EX_WITH_RDMA_WRITE, EOPNOTSUPP},
      {IBV_QPT_UD, kUdOperations | IBV_QP_EX_WITH_RDMA_READ, EOPNOTSUPP},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(::testing::Message() << c.type << " " << c.operations);
    ibv_qp_init_attr_ex init{};
    init.send_cq = init.recv_cq = endpoint.cq.get();
    init.cap = endpoint.options.cap;
    init.qp_type = c.type;
    init.pd = endpoint.pd.get();
    init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    init.send_ops_flags = c.operations;
    errno = 0;
    Qp qp(ibv_create_qp_ex(endpoint.context.get(), &init));
    EXPECT_EQ(qp == nullptr ? errno : 0, c.error);
    if (qp != nullptr) {
      EXPECT_NE(ibv_qp_to_qp_ex(qp.get()), nullptr);
    }
  }
}

}  // namespace
}  // namespace verbena::adapter::testing
