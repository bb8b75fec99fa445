// SPDX-License-Identifier: Apache-2.0
// ATOMIC WRITE and FLUSH as programs request them, including programs built with later headers.
#include <cstring>

#include "adapter/objects/send_request.h"
#include "adapter/objects/support/endpoint.h"

namespace verbena::adapter::testing {
namespace {

// Values of rdma-core 45's verbs.h that the headers of the build may lack.
constexpr uint64_t kWithFlush = 1 << 11;
constexpr unsigned kFlushGlobal = 1 << 8;
constexpr unsigned kFlushPersistent = 1 << 9;
constexpr int kFlushCompletion = 8;
constexpr uint64_t kDeviceFlushGlobal = 1ull << 38;
constexpr uint64_t kDeviceFlushPersistent = 1ull << 39;
constexpr uint64_t kDeviceAtomicWrite = 1ull << 40;

// ibv_wr_flush() where the headers have it. Otherwise the same code: the operation follows wr_atomic_write.
template <class QpEx>
void wr_flush(QpEx* qp, uint32_t rkey, uint64_t remote_addr, size_t length, uint8_t type, uint8_t level) {
  if constexpr (requires { ibv_wr_flush(qp, rkey, remote_addr, length, type, level); }) {
    ibv_wr_flush(qp, rkey, remote_addr, length, type, level);
  } else {
    constexpr size_t kFlushOffset = offsetof(ibv_qp_ex, wr_atomic_write) + sizeof(void*);
    void (*operation)(ibv_qp_ex*, uint32_t, uint64_t, size_t, uint8_t, uint8_t);
    std::memcpy(&operation, reinterpret_cast<const std::byte*>(qp) + kFlushOffset, sizeof operation);
    operation(qp, rkey, remote_addr, length, type, level);
  }
}

// The end of ibv_qp_ex in headers that have wr_flush, and in headers that have one more operation.
struct QpOfRdmaCore45 {
  void (*wr_atomic_write)();
  void (*wr_flush)();
};
struct QpOfLaterRdmaCore {
  void (*wr_atomic_write)();
  void (*wr_flush)();
  void (*wr_another)();
};
struct QpOfRdmaCore44 {
  void (*wr_atomic_write)();
};
static_assert(sizeof(WithFlush<QpOfRdmaCore44>) == 2 * sizeof(void*));
static_assert(WithFlush<QpOfRdmaCore44>::kFlushOffset == sizeof(void*));
static_assert(sizeof(WithFlush<QpOfRdmaCore45>) == 2 * sizeof(void*), "headers that have it get no second");
static_assert(WithFlush<QpOfRdmaCore45>::kFlushOffset == sizeof(void*));
static_assert(WithFlush<QpOfLaterRdmaCore>::kFlushOffset == sizeof(void*));

uint64_t word_at(const std::byte* at) {
  uint64_t value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

TEST(Placement, TheDeviceSaysWhatItDoes) {
  Context context = open_device();
  ibv_device_attr_ex device{};
  ASSERT_EQ(ibv_query_device_ex(context.get(), nullptr, &device), 0);
  EXPECT_NE(device.device_cap_flags_ex & kDeviceAtomicWrite, 0u);
  EXPECT_NE(device.device_cap_flags_ex & kDeviceFlushGlobal, 0u);
  EXPECT_EQ(device.device_cap_flags_ex & kDeviceFlushPersistent, 0u) << "memory forgets";
}

TEST(Placement, AtomicWritesArePostedInEitherWay) {
  Pair pair({.send_operations = IBV_QP_EX_WITH_ATOMIC_WRITE | IBV_QP_EX_WITH_RDMA_WRITE});
  const uint64_t remote = pair.b.address().buffer;
  uint64_t value = 0x1111;
  std::memcpy(pair.a.buffer(), &value, sizeof value);
  const ibv_sge registered = pair.a.piece(0, 8);
  const ibv_sge anywhere = {reinterpret_cast<uint64_t>(&value), 8, 0};
  ibv_send_wr request = remote_request(IBV_WR_ATOMIC_WRITE, 1, pair.b.address());
  ASSERT_EQ(pair.a.post_send(request, {&registered, 1}), 0);
  ibv_wc wc = pair.a.completion();
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.opcode, IBV_WC_ATOMIC_WRITE);
  EXPECT_EQ(word_at(pair.b.buffer()), 0x1111u);

  value = 0x2222;
  request.send_flags |= IBV_SEND_INLINE;
  request.wr.rdma.remote_addr = remote + 8;
  ASSERT_EQ(pair.a.post_send(request, {&anywhere, 1}), 0);
  EXPECT_EQ(pair.a.completion().status, IBV_WC_SUCCESS);
  EXPECT_EQ(word_at(pair.b.buffer() + 8), 0x2222u);

  ibv_qp_ex* qp = ibv_qp_to_qp_ex(pair.a.qp.get());
  ASSERT_NE(qp, nullptr);
  value = 0x3333;
  ibv_wr_start(qp);
  qp->wr_id = 3;
  qp->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_atomic_write(qp, pair.b.mr->rkey, remote + 16, &value);
  value = 0;
  ASSERT_EQ(ibv_wr_complete(qp), 0);
  wc = pair.a.completion();
  EXPECT_EQ(wc.wr_id, 3u);
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(word_at(pair.b.buffer() + 16), 0x3333u);
}

TEST(Placement, BadAtomicWritesAreRefusedWhenPosted) {
  Pair pair({.send_operations = IBV_QP_EX_WITH_ATOMIC_WRITE});
  const ibv_sge longer = pair.a.piece(0, 16);
  ibv_send_wr request = remote_request(IBV_WR_ATOMIC_WRITE, 1, pair.b.address());
  EXPECT_EQ(pair.a.post_send(request, {&longer, 1}), EINVAL);
  EXPECT_EQ(pair.a.post_send(request, {}), EINVAL);
  ibv_qp_ex* qp = ibv_qp_to_qp_ex(pair.a.qp.get());
  ASSERT_NE(qp, nullptr);
  ibv_wr_start(qp);
  ibv_wr_atomic_write(qp, pair.b.mr->rkey, pair.b.address().buffer, reinterpret_cast<void*>(8));
  EXPECT_EQ(ibv_wr_complete(qp), EFAULT);
  EXPECT_TRUE(pair.a.quiet());
}

TEST(Placement, AnAtomicWriteToAnUnalignedAddressIsAnInvalidRequestToTheResponder) {
  Pair pair({.send_operations = IBV_QP_EX_WITH_ATOMIC_WRITE});
  const ibv_sge word = pair.a.piece(0, 8);
  ibv_send_wr request = remote_request(IBV_WR_ATOMIC_WRITE, 1, pair.b.address());
  request.wr.rdma.remote_addr += 4;
  ASSERT_EQ(pair.a.post_send(request, {&word, 1}), 0);
  EXPECT_EQ(pair.a.completion().status, IBV_WC_REM_INV_REQ_ERR);
}

TEST(Placement, AFlushFollowsTheWritesBeforeIt) {
  Pair pair({.access = kAllAccess | kFlushGlobal, .send_operations = kWithFlush | IBV_QP_EX_WITH_RDMA_WRITE});
  ibv_qp_ex* qp = ibv_qp_to_qp_ex(pair.a.qp.get());
  ASSERT_NE(qp, nullptr);
  const ibv_sge piece = pair.a.piece(0, 3000);
  const uint64_t remote = pair.b.address().buffer;
  ibv_wr_start(qp);
  qp->wr_flags = 0;
  ibv_wr_rdma_write(qp, pair.b.mr->rkey, remote);
  ibv_wr_set_sge(qp, piece.lkey, piece.addr, piece.length);
  qp->wr_id = 5;
  qp->wr_flags = IBV_SEND_SIGNALED;
  wr_flush(qp, pair.b.mr->rkey, remote, 3000, 1, 0);
  wr_flush(qp, pair.b.mr->rkey, 0, 0, 1, 1);  // the whole region
  ASSERT_EQ(ibv_wr_complete(qp), 0);
  for (int i = 0; i < 2; ++i) {
    const ibv_wc wc = pair.a.completion();
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.wr_id, 5u);
    EXPECT_EQ(static_cast<int>(wc.opcode), kFlushCompletion);
  }
}

TEST(Placement, AFlushNeedsRights) {
  Pair pair({.send_operations = kWithFlush});
  ibv_qp_ex* qp = ibv_qp_to_qp_ex(pair.a.qp.get());
  ASSERT_NE(qp, nullptr);
  ibv_wr_start(qp);
  qp->wr_flags = IBV_SEND_SIGNALED;
  wr_flush(qp, pair.b.mr->rkey, pair.b.address().buffer, 8, 1, 0);
  ASSERT_EQ(ibv_wr_complete(qp), 0);
  EXPECT_EQ(pair.a.completion().status, IBV_WC_REM_INV_REQ_ERR);

  ibv_wr_start(qp);
  wr_flush(qp, pair.b.mr->rkey, 0, 8, 0, 0);
  EXPECT_EQ(ibv_wr_complete(qp), EINVAL) << "of no kind";
  ibv_wr_start(qp);
  wr_flush(qp, pair.b.mr->rkey, 0, 8, 1, 2);
  EXPECT_EQ(ibv_wr_complete(qp), EINVAL) << "of no selectivity";
}

TEST(Placement, NoMemoryIsPersistent) {
  Endpoint endpoint;
  std::byte memory[64];
  EXPECT_EQ(ibv_reg_mr(endpoint.pd.get(), memory, sizeof memory, static_cast<int>(kFlushPersistent)),
            nullptr);
  EXPECT_EQ(errno, EINVAL);
}

}  // namespace
}  // namespace verbena::adapter::testing
