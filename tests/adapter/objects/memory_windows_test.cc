// SPDX-License-Identifier: Apache-2.0
// Memory windows of both types: allocation, binding, invalidation, and the destruction of what they depend
// on.
#include <cstring>
#include <memory>

#include "adapter/objects/support/endpoint.h"

namespace verbena::adapter::testing {
namespace {

constexpr unsigned kBindable = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;

struct Dealloc {
  void operator()(ibv_mw* mw) const { EXPECT_EQ(ibv_dealloc_mw(mw), 0); }
};
using Mw = std::unique_ptr<ibv_mw, Dealloc>;

// Two connected endpoints; b binds a window to its own memory.
class MemoryWindow : public ::testing::Test {
 protected:
  void open(ibv_mw_type type) {
    std::memset(memory, 0, sizeof memory);
    mr.reset(ibv_reg_mr(pair.b.pd.get(), memory, sizeof memory, kBindable));
    ASSERT_NE(mr, nullptr);
    mw.reset(ibv_alloc_mw(pair.b.pd.get(), type));
    ASSERT_NE(mw, nullptr);
  }

  ibv_mw_bind_info info(unsigned access = IBV_ACCESS_REMOTE_WRITE) const {
    return {mr.get(), number(memory) + 1000, 500, access};
  }
  int bind1(const ibv_mw_bind_info& to) {
    ibv_mw_bind bind{11, IBV_SEND_SIGNALED, to};
    return ibv_bind_mw(pair.b.qp.get(), mw.get(), &bind);
  }
  int bind2(const ibv_mw_bind_info& to) {
    ibv_send_wr request = send_request(12);
    request.opcode = IBV_WR_BIND_MW;
    request.bind_mw = {mw.get(), ibv_inc_rkey(mw->rkey), to};
    return pair.b.post_send(request, {});
  }
  int invalidate(uint32_t rkey) {
    ibv_send_wr request = send_request(13);
    request.opcode = IBV_WR_LOCAL_INV;
    request.invalidate_rkey = rkey;
    return pair.b.post_send(request, {});
  }
  // Returns the status of a's WRITE of ten bytes to b.
  ibv_wc_status write(uint64_t address, uint32_t rkey) {
    Address there = pair.b.address();
    there.rkey = rkey;
    there.buffer = address;
    const ibv_sge piece = pair.a.piece(0, 10);
    EXPECT_EQ(pair.a.post_send(remote_request(IBV_WR_RDMA_WRITE, 1, there), {&piece, 1}), 0);
    return pair.a.completion().status;
  }
  static uint64_t number(const void* at) { return reinterpret_cast<uint64_t>(at); }

  alignas(4096) std::byte memory[4096];
  Pair pair;
  Mr mr;
  Mw mw;
};

TEST_F(MemoryWindow, OfType1OpensWhatItIsBoundTo) {
  open(IBV_MW_TYPE_1);
  const uint32_t before = mw->rkey;
  ASSERT_EQ(bind1(info()), 0);
  EXPECT_NE(mw->rkey, before) << "it has its new key at once";
  const ibv_wc wc = pair.b.completion();
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.opcode, IBV_WC_BIND_MW);
  EXPECT_EQ(wc.wr_id, 11u);
  fill_random(pair.a.bytes(), 1);
  EXPECT_EQ(write(number(memory) + 1000, mw->rkey), IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(memory + 1000, pair.a.buffer(), 10), 0);
  EXPECT_EQ(write(number(memory) + 999, mw->rkey), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(MemoryWindow, OfType1IsClosedByLengthZero) {
  open(IBV_MW_TYPE_1);
  ASSERT_EQ(bind1(info()), 0);
  ASSERT_EQ(bind1({mr.get(), number(memory), 0, 0}), 0);
  EXPECT_EQ(pair.b.completion().status, IBV_WC_SUCCESS);
  EXPECT_EQ(pair.b.completion().status, IBV_WC_SUCCESS);
  EXPECT_EQ(write(number(memory) + 1000, mw->rkey), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(MemoryWindow, OfType2IsBoundAndInvalidatedByRequests) {
  open(IBV_MW_TYPE_2);
  for (int round = 0; round < 3; ++round) {
    ASSERT_EQ(bind2(info(IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ZERO_BASED)), 0);
    ASSERT_EQ(pair.b.completion().status, IBV_WC_SUCCESS);
    ASSERT_EQ(write(490, mw->rkey), IBV_WC_SUCCESS);
    ASSERT_EQ(invalidate(mw->rkey), 0);
    const ibv_wc wc = pair.b.completion();
    ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
    ASSERT_EQ(wc.opcode, IBV_WC_LOCAL_INV);
  }
  EXPECT_EQ(write(0, mw->rkey), IBV_WC_REM_ACCESS_ERR);
}

// The window gets its new key when the bind is posted, as with irdma's library. Programs for adapters read
// the window's key instead of the one that they chose.
TEST_F(MemoryWindow, OfType2HasItsNewKeyOnceTheBindIsPosted) {
  open(IBV_MW_TYPE_2);
  const uint32_t before = mw->rkey;
  ibv_send_wr requests[3];
  ibv_send_wr* bad = nullptr;
  for (uint32_t i = 0; i < 3; ++i) {
    requests[i] = send_request(i);
    requests[i].opcode = i == 1 ? IBV_WR_LOCAL_INV : IBV_WR_BIND_MW;
    requests[i].next = i < 2 ? &requests[i + 1] : nullptr;
  }
  requests[0].bind_mw = {mw.get(), ibv_inc_rkey(before), info()};
  requests[1].invalidate_rkey = ibv_inc_rkey(before);
  requests[2].bind_mw = {mw.get(), before, info()};
  ibv_sge piece = pair.b.piece(0, 8);
  requests[2].sg_list = &piece;
  requests[2].num_sge = 1;  // a bind with data is refused
  EXPECT_EQ(ibv_post_send(pair.b.qp.get(), requests, &bad), EINVAL);
  EXPECT_EQ(bad, &requests[2]);
  EXPECT_EQ(mw->rkey, ibv_inc_rkey(before)) << "the bind before the refused one was posted";
  for (int i = 0; i < 2; ++i) EXPECT_EQ(pair.b.completion().status, IBV_WC_SUCCESS);
  // Each bind in a list continues from the key of the bind before it.
  requests[0].bind_mw.rkey = ibv_inc_rkey(ibv_inc_rkey(before));
  requests[1].invalidate_rkey = requests[0].bind_mw.rkey;
  requests[2].bind_mw.rkey = ibv_inc_rkey(requests[0].bind_mw.rkey);
  requests[2].num_sge = 0;
  ASSERT_EQ(ibv_post_send(pair.b.qp.get(), requests, &bad), 0);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(pair.b.completion().status, IBV_WC_SUCCESS);
  EXPECT_EQ(mw->rkey, requests[2].bind_mw.rkey);
  EXPECT_EQ(write(number(memory) + 1000, mw->rkey), IBV_WC_SUCCESS);
}

TEST_F(MemoryWindow, OfType2IsInvalidatedByThePeer) {
  open(IBV_MW_TYPE_2);
  ASSERT_EQ(bind2(info()), 0);
  ASSERT_EQ(pair.b.completion().status, IBV_WC_SUCCESS);
  ASSERT_EQ(pair.b.post_receive(3, pair.b.piece(0, 100)), 0);
  ibv_send_wr request = send_request(4);
  request.opcode = IBV_WR_SEND_WITH_INV;
  request.invalidate_rkey = mw->rkey;
  const ibv_sge piece = pair.a.piece(0, 100);
  ASSERT_EQ(pair.a.post_send(request, {&piece, 1}), 0);
  const ibv_wc wc = pair.b.completion();
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.wc_flags, static_cast<unsigned>(IBV_WC_WITH_INV));
  EXPECT_EQ(wc.invalidated_rkey, mw->rkey);
  EXPECT_EQ(pair.a.completion().status, IBV_WC_SUCCESS);
  EXPECT_EQ(write(number(memory) + 1000, mw->rkey), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(MemoryWindow, OfType2IsItsQpsAlone) {
  open(IBV_MW_TYPE_2);
  Endpoint stranger;
  ASSERT_EQ(bind2(info()), 0);
  ASSERT_EQ(pair.b.completion().status, IBV_WC_SUCCESS);
  // Another QP with the same protection domain, to which a connects.
  ibv_qp_init_attr init{};
  init.qp_type = IBV_QPT_RC;
  init.send_cq = init.recv_cq = pair.b.cq.get();
  init.cap = {4, 4, 1, 1, 0};
  Qp old = std::move(pair.b.qp);
  pair.b.qp.reset(ibv_create_qp(pair.b.pd.get(), &init));
  stranger.connect(pair.b.address());
  pair.b.connect(stranger.address());
  Address there = pair.b.address();
  there.rkey = mw->rkey;
  there.buffer = number(memory) + 1000;
  const ibv_sge piece = stranger.piece(0, 10);
  ASSERT_EQ(stranger.post_send(remote_request(IBV_WR_RDMA_WRITE, 1, there), {&piece, 1}), 0);
  EXPECT_EQ(stranger.completion().status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(write(there.buffer, mw->rkey), IBV_WC_SUCCESS) << "its own still may";
}

TEST_F(MemoryWindow, MustNotBeBoundToWhatItsRegionForbids) {
  const struct {
    const char* what;
    unsigned region;
    ibv_mw_bind_info to;
  } cases[] = {
      {"a region that allows no windows", IBV_ACCESS_LOCAL_WRITE, info()},
      {"writing where the owner may not", IBV_ACCESS_MW_BIND, info()},
      {"more than the region", kBindable, {nullptr, number(memory) + 4000, 500, IBV_ACCESS_REMOTE_READ}},
      {"rights that are no window's", kBindable, info(IBV_ACCESS_ON_DEMAND)},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.what);
    Pair fresh;
    Mr region(ibv_reg_mr(fresh.b.pd.get(), memory, sizeof memory, static_cast<int>(c.region)));
    Mw window(ibv_alloc_mw(fresh.b.pd.get(), IBV_MW_TYPE_2));
    ibv_send_wr request = send_request(12);
    request.opcode = IBV_WR_BIND_MW;
    request.bind_mw = {window.get(), ibv_inc_rkey(window->rkey), c.to};
    request.bind_mw.bind_info.mr = region.get();
    ASSERT_EQ(fresh.b.post_send(request, {}), 0);
    EXPECT_EQ(fresh.b.completion().status, IBV_WC_MW_BIND_ERR);
    EXPECT_EQ(fresh.b.state(), IBV_QPS_ERR);
    window.reset();
  }
}

TEST_F(MemoryWindow, KeepsItsRegion) {
  for (const auto type : {IBV_MW_TYPE_1, IBV_MW_TYPE_2}) {
    open(type);
    ASSERT_EQ(type == IBV_MW_TYPE_1 ? bind1(info()) : bind2(info()), 0);
    ASSERT_EQ(pair.b.completion().status, IBV_WC_SUCCESS);
    EXPECT_EQ(ibv_dereg_mr(mr.get()), EBUSY);
    EXPECT_EQ(ibv_rereg_mr(mr.get(), IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0),
              IBV_REREG_MR_ERR_CMD);
    EXPECT_EQ(errno, EBUSY);
    mw.reset();
    EXPECT_EQ(ibv_rereg_mr(mr.get(), IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0), 0);
  }
}

TEST_F(MemoryWindow, KeepsItsProtectionDomain) {
  Pd pd(ibv_alloc_pd(pair.b.context.get()));
  mw.reset(ibv_alloc_mw(pd.get(), IBV_MW_TYPE_2));
  EXPECT_EQ(ibv_dealloc_pd(pd.get()), EBUSY);
  mw.reset();
}

TEST_F(MemoryWindow, OfType2IsFreeWhenItsQpIsDestroyed) {
  open(IBV_MW_TYPE_2);
  ASSERT_EQ(bind2(info()), 0);
  ASSERT_EQ(pair.b.completion().status, IBV_WC_SUCCESS);
  pair.b.qp.reset();
  mr.reset();  // no window is bound to it any more
}

TEST_F(MemoryWindow, IsClosedByItsDeallocation) {
  open(IBV_MW_TYPE_1);
  ASSERT_EQ(bind1(info()), 0);
  ASSERT_EQ(pair.b.completion().status, IBV_WC_SUCCESS);
  const uint32_t rkey = mw->rkey;
  mw.reset();
  EXPECT_EQ(write(number(memory) + 1000, rkey), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(MemoryWindow, IsDestroyedWithItsContext) {
  Context context = open_device();
  ibv_pd* pd = ibv_alloc_pd(context.get());
  ASSERT_NE(ibv_alloc_mw(pd, IBV_MW_TYPE_1), nullptr);
  ASSERT_NE(ibv_alloc_mw(pd, IBV_MW_TYPE_2), nullptr);
}

TEST_F(MemoryWindow, IsRefusedWhereItIsOfNoUse) {
  open(IBV_MW_TYPE_1);
  EXPECT_EQ(ibv_alloc_mw(pair.b.pd.get(), static_cast<ibv_mw_type>(3)), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(bind1(info(IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ZERO_BASED)), EINVAL);
  Mr null(ibv_alloc_null_mr(pair.b.pd.get()));
  EXPECT_EQ(bind1({null.get(), 0, 10, IBV_ACCESS_REMOTE_READ}), EOPNOTSUPP);
  Endpoint datagrams({.type = IBV_QPT_UD});
  datagrams.connect(datagrams.address());
  ibv_mw_bind bind{1, 0, info()};
  EXPECT_EQ(ibv_bind_mw(datagrams.qp.get(), mw.get(), &bind), EINVAL);
  Mw second(ibv_alloc_mw(pair.b.pd.get(), IBV_MW_TYPE_2));
  EXPECT_EQ(ibv_bind_mw(pair.b.qp.get(), second.get(), &bind), EINVAL) << "not by this call";
}

TEST_F(MemoryWindow, IsSaidToBeThere) {
  ibv_device_attr_ex attr{};
  ASSERT_EQ(ibv_query_device_ex(pair.a.context.get(), nullptr, &attr), 0);
  EXPECT_GT(attr.orig_attr.max_mw, 0);
  constexpr uint64_t kWindows = IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
  EXPECT_EQ(attr.device_cap_flags_ex & kWindows, kWindows);
  EXPECT_EQ(attr.orig_attr.device_cap_flags & kWindows, kWindows);
}

}  // namespace
}  // namespace verbena::adapter::testing
