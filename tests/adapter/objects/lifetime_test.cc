// SPDX-License-Identifier: Apache-2.0
// When objects may be destroyed, and what happens to those that are left.
#include <algorithm>

#include <fcntl.h>
#include <malloc.h>
#include <poll.h>

#include "adapter/objects/support/endpoint.h"
#include "adapter/objects/support/environment.h"

namespace verbena::adapter::testing {
namespace {

TEST(Lifetime, ProtectionDomainIsBusyWhileAnythingIsInIt) {
  Context context = open_device();
  ibv_pd* pd = ibv_alloc_pd(context.get());
  ASSERT_NE(pd, nullptr);
  std::vector<std::byte> memory(4096);
  ibv_mr* mr = ibv_reg_mr(pd, memory.data(), memory.size(), 0);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(ibv_dealloc_pd(pd), EBUSY);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);

  ibv_ah_attr attr{};
  attr.is_global = 1;
  attr.port_num = 1;
  attr.grh.sgid_index = static_cast<uint8_t>(find_gid(context.get()));
  ASSERT_EQ(ibv_query_gid(context.get(), 1, attr.grh.sgid_index, &attr.grh.dgid), 0);
  ibv_ah* ah = ibv_create_ah(pd, &attr);
  ASSERT_NE(ah, nullptr);
  EXPECT_EQ(ibv_dealloc_pd(pd), EBUSY);
  EXPECT_EQ(ibv_destroy_ah(ah), 0);

  Cq cq(ibv_create_cq(context.get(), 1, nullptr, nullptr, 0));
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq.get();
  init.qp_type = IBV_QPT_RC;
  ibv_qp* qp = ibv_create_qp(pd, &init);
  ASSERT_NE(qp, nullptr);
  EXPECT_EQ(ibv_dealloc_pd(pd), EBUSY);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

TEST(Lifetime, CompletionQueueIsBusyWhileAQueuePairUsesItInEitherRole) {
  Context context = open_device();
  Pd pd(ibv_alloc_pd(context.get()));
  ibv_cq* send_cq = ibv_create_cq(context.get(), 4, nullptr, nullptr, 0);
  ibv_cq* recv_cq = ibv_create_cq(context.get(), 4, nullptr, nullptr, 0);
  ibv_qp_init_attr init{};
  init.send_cq = send_cq;
  init.recv_cq = recv_cq;
  init.qp_type = IBV_QPT_UD;
  ibv_qp* qp = ibv_create_qp(pd.get(), &init);
  ASSERT_NE(qp, nullptr);
  EXPECT_EQ(ibv_destroy_cq(send_cq), EBUSY);
  EXPECT_EQ(ibv_destroy_cq(recv_cq), EBUSY);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  EXPECT_EQ(ibv_destroy_cq(send_cq), 0);
  EXPECT_EQ(ibv_destroy_cq(recv_cq), 0);
}

TEST(Lifetime, CompletionChannelIsBusyWhileACompletionQueueUsesIt) {
  Context context = open_device();
  ibv_comp_channel* channel = ibv_create_comp_channel(context.get());
  ASSERT_NE(channel, nullptr);
  ibv_cq* cq = ibv_create_cq(context.get(), 4, nullptr, channel, 0);
  ASSERT_NE(cq, nullptr);
  EXPECT_EQ(channel->refcnt, 1);
  EXPECT_EQ(ibv_destroy_comp_channel(channel), EBUSY);
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
  EXPECT_EQ(channel->refcnt, 0);
  EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
}

TEST(Lifetime, ClosingADeviceDestroysWhatIsLeftOfIt) {
  Context keeper =
      open_device();  // keeps the engine, and with it the keys, alive after the other context closes
  Pair* pair = new Pair({.with_channel = true});
  Endpoint& a = pair->a;
  ASSERT_EQ(a.post_receive(1, a.piece(0, 64)), 0);
  ASSERT_EQ(ibv_req_notify_cq(a.cq.get(), 0), 0);
  a.modify_to(IBV_QPS_ERR);  // flushes: leaves a pending event that is never read
  // Destroys no object explicitly: only the context is closed.
  a.qp.release();
  a.mr.release();
  a.cq.release();
  a.channel.release();
  a.pd.release();
  ibv_context* context = a.context.release();
  EXPECT_EQ(ibv_close_device(context), 0);
  delete pair;

  // Leftovers do not disturb new objects.
  Pair fresh;
  ASSERT_EQ(fresh.b.post_receive(2, fresh.b.piece(0, 64)), 0);
  const ibv_sge piece = fresh.a.piece(0, 64);
  ASSERT_EQ(fresh.a.post_send(send_request(3), {&piece, 1}), 0);
  EXPECT_EQ(fresh.a.completion().status, IBV_WC_SUCCESS);
}

TEST(Lifetime, ClosingADeviceDoesNotWaitForEventsThatNobodyAcknowledges) {
  Context context = open_device();
  Pd pd(ibv_alloc_pd(context.get()));
  ibv_cq* cq = ibv_create_cq(context.get(), 1, nullptr, nullptr, 0);
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq;
  init.cap.max_recv_wr = 4;
  init.qp_type = IBV_QPT_RC;
  ibv_qp* qp = ibv_create_qp(pd.get(), &init);
  ASSERT_NE(qp, nullptr);
  ibv_qp_attr attr = init_attributes({});
  ASSERT_EQ(ibv_modify_qp(qp, &attr, init_mask(IBV_QPT_RC)), 0);
  ibv_recv_wr request{};
  ibv_recv_wr* bad = nullptr;
  for (int i = 0; i < 3; ++i) ASSERT_EQ(ibv_post_recv(qp, &request, &bad), 0);
  attr.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);  // three flushes into a CQ with room for one
  ibv_async_event event;
  ASSERT_EQ(ibv_get_async_event(context.get(), &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_CQ_ERR);
  EXPECT_EQ(event.element.cq, cq);
  pd.release();
  EXPECT_EQ(ibv_close_device(context.release()), 0);
}

TEST(Lifetime, DescriptorsOfAContextAreReal) {
  Context context = open_device();
  for (const int fd : {context->async_fd, context->cmd_fd}) {
    ASSERT_GE(fd, 0);
    EXPECT_NE(::fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
    // The command descriptor always polls as ready, as the kernel's does, although nothing comes through it.
    pollfd entry{fd, POLLIN, 0};
    EXPECT_EQ(::poll(&entry, 1, 0), fd == context->cmd_fd ? 1 : 0);
    const int copy = ::dup(fd);
    EXPECT_GE(copy, 0);
    ::close(copy);
  }
}

TEST(Lifetime, ContextsOfOneDeviceAreIndependent) {
  Pair pair;
  {
    Context another = open_device();
    Pd pd(ibv_alloc_pd(another.get()));
    ASSERT_NE(pd, nullptr);
    EXPECT_NE(another->async_fd, pair.a.context->async_fd);
  }
  ASSERT_EQ(pair.b.post_receive(1, pair.b.piece(0, 16)), 0);
  const ibv_sge piece = pair.a.piece(0, 16);
  ASSERT_EQ(pair.a.post_send(send_request(2), {&piece, 1}), 0);
  EXPECT_EQ(pair.a.completion().status, IBV_WC_SUCCESS);
}

TEST(Lifetime, AThousandQueuePairsComeAndGo) {
  Context context = open_device();
  Pd pd(ibv_alloc_pd(context.get()));
  Cq cq(ibv_create_cq(context.get(), 16, nullptr, nullptr, 0));
  std::vector<uint32_t> numbers;
  for (int round = 0; round < 2; ++round) {
    std::vector<Qp> qps;
    for (int i = 0; i < 1000; ++i) {
      ibv_qp_init_attr init{};
      init.send_cq = init.recv_cq = cq.get();
      init.qp_type = IBV_QPT_RC;
      init.cap = {
          .max_send_wr = 128, .max_recv_wr = 128, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
      qps.emplace_back(ibv_create_qp(pd.get(), &init));
      ASSERT_NE(qps.back(), nullptr) << i;
      numbers.push_back(qps.back()->qp_num);
    }
  }
  // A QPN is not reused while others are free: late packets must not reach a new QP.
  std::sort(numbers.begin(), numbers.end());
  EXPECT_EQ(std::adjacent_find(numbers.begin(), numbers.end()), numbers.end());
}

// Heap memory, without the rings, which are mapped.
TEST(Lifetime, AnIdleQueuePairTakesLittleMemory) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer has a heap of its own";
#endif
  constexpr size_t kCount = 1000;
  Context context = open_device();
  Pd pd(ibv_alloc_pd(context.get()));
  Cq cq(ibv_create_cq(context.get(), 16, nullptr, nullptr, 0));
  std::vector<Qp> qps;
  qps.reserve(kCount);
  const size_t before = ::mallinfo2().uordblks;
  for (size_t i = 0; i < kCount; ++i) {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq.get();
    init.qp_type = IBV_QPT_RC;
    init.cap = {
        .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
    qps.emplace_back(ibv_create_qp(pd.get(), &init));
    ASSERT_NE(qps.back(), nullptr) << i;
  }
  const size_t each = (::mallinfo2().uordblks - before) / kCount;
  RecordProperty("bytes", static_cast<int>(each));
  EXPECT_LE(each, 4096u);
  EXPECT_GT(each, sizeof(ibv_qp_ex)) << "measured nothing";
}

TEST(Lifetime, DestroyingAQueuePairTakesItsCompletionsAlong) {
  Endpoint endpoint;
  ASSERT_EQ(endpoint.context != nullptr, true);
  ibv_qp_attr attr = init_attributes(endpoint.options);
  ASSERT_EQ(ibv_modify_qp(endpoint.qp.get(), &attr, init_mask(IBV_QPT_RC)), 0);
  ASSERT_EQ(endpoint.post_receive(1, endpoint.piece(0, 8)), 0);
  endpoint.modify_to(IBV_QPS_ERR);
  endpoint.qp.reset();
  EXPECT_TRUE(endpoint.quiet());
}

}  // namespace
}  // namespace verbena::adapter::testing
