// SPDX-License-Identifier: Apache-2.0
// Shared receive queues through the verbs: errors of their calls (ibv_create_srq(3), ibv_modify_srq(3), the
// kernel's rxe), messages, events.
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "adapter/objects/support/services.h"
#include "base/watched_thread.h"
#include "wire/roce/qpn.h"

namespace verbena::adapter::testing {
namespace {

class SharedReceiveQueues : public ::testing::Test {
 protected:
  Bench bench;
};

TEST_F(SharedReceiveQueues, Creating) {
  ibv_device_attr device{};
  ASSERT_EQ(ibv_query_device(bench.context.get(), &device), 0);
  ASSERT_GT(device.max_srq, 0);
  struct Case {
    const char* what;
    uint32_t requests;
    uint32_t sges;
    int error;  // 0: success
  };
  const Case cases[] = {
      {"one request", 1, 1, 0},
      {"without a list", 16, 0, 0},
      {"an odd number", 100, 3, 0},
      {"as many as the device says", static_cast<uint32_t>(device.max_srq_wr), 1, 0},
      {"as long lists as the device says", 1, static_cast<uint32_t>(device.max_srq_sge), 0},
      {"no requests", 0, 1, EINVAL},
      {"more than the device says", static_cast<uint32_t>(device.max_srq_wr) + 1, 1, EINVAL},
      {"longer lists", 1, static_cast<uint32_t>(device.max_srq_sge) + 1, EINVAL},
      {"no number at all", UINT32_MAX, 1, EINVAL},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    int its_context = 0;
    ibv_srq_init_attr init{};
    init.srq_context = &its_context;
    init.attr = {.max_wr = c.requests, .max_sge = c.sges, .srq_limit = 77};
    errno = 0;
    Srq srq(ibv_create_srq(bench.pd.get(), &init));
    EXPECT_EQ(srq == nullptr ? errno : 0, c.error);
    if (srq == nullptr) continue;
    EXPECT_GE(init.attr.max_wr, c.requests);
    EXPECT_GE(init.attr.max_sge, c.sges);
    EXPECT_EQ(srq->context, bench.context.get());
    EXPECT_EQ(srq->srq_context, &its_context);
    EXPECT_EQ(srq->pd, bench.pd.get());
    ibv_srq_attr attr{};
    ASSERT_EQ(ibv_query_srq(srq.get(), &attr), 0);
    EXPECT_EQ(attr.max_wr, init.attr.max_wr);
    EXPECT_EQ(attr.max_sge, init.attr.max_sge);
    EXPECT_EQ(attr.srq_limit, 0u) << "which creating does not set";
  }
}

// A program that creates a CQ of the same size as the SRQ may fill the SRQ without overrunning the CQ.
TEST_F(SharedReceiveQueues, HoldNoMoreThanACompletionQueueOfTheSameSize) {
  for (const uint32_t asked : {1u, 15u, 16u, 100u, 4095u, 4096u}) {
    SCOPED_TRACE(asked);
    ibv_srq_attr attr{};
    Srq srq = bench.make_srq(asked);
    ASSERT_EQ(ibv_query_srq(srq.get(), &attr), 0);
    Cq created(ibv_create_cq(bench.context.get(), static_cast<int>(asked), nullptr, nullptr, 0));
    EXPECT_GE(created->cqe, static_cast<int>(attr.max_wr));
    Cq resized(ibv_create_cq(bench.context.get(), 10'000, nullptr, nullptr, 0));
    ASSERT_EQ(ibv_resize_cq(resized.get(), static_cast<int>(asked)), 0);
    EXPECT_GE(resized->cqe, static_cast<int>(attr.max_wr));
    ibv_srq_init_attr init{};
    init.attr = {.max_wr = 10'000, .max_sge = 1, .srq_limit = 0};
    Srq modified(ibv_create_srq(bench.pd.get(), &init));
    attr.max_wr = asked;
    ASSERT_EQ(ibv_modify_srq(modified.get(), &attr, IBV_SRQ_MAX_WR), 0);
    ASSERT_EQ(ibv_query_srq(modified.get(), &attr), 0);
    EXPECT_GE(created->cqe, static_cast<int>(attr.max_wr));
    ibv_qp_init_attr qp_init{};
    qp_init.send_cq = qp_init.recv_cq = created.get();
    qp_init.qp_type = IBV_QPT_RC;
    qp_init.cap = {.max_send_wr = asked,
                   .max_recv_wr = asked,
                   .max_send_sge = 1,
                   .max_recv_sge = 1,
                   .max_inline_data = 0};
    Qp qp(ibv_create_qp(bench.pd.get(), &qp_init));
    ASSERT_NE(qp, nullptr);
    EXPECT_GE(created->cqe, static_cast<int>(qp_init.cap.max_recv_wr));
    EXPECT_GE(created->cqe, static_cast<int>(qp_init.cap.max_send_wr));
  }
}

TEST_F(SharedReceiveQueues, FullOnesDoNotOverrunACompletionQueueOfTheSameSize) {
  constexpr uint32_t kAsked = 15;
  Srq srq = bench.make_srq(kAsked);
  Cq receives(ibv_create_cq(bench.context.get(), kAsked, nullptr, nullptr, 0));
  ibv_qp_init_attr init{};
  init.send_cq = bench.cq.get();
  init.recv_cq = receives.get();
  init.srq = srq.get();
  init.qp_type = IBV_QPT_RC;
  init.cap = {
      .max_send_wr = 64, .max_recv_wr = 0, .max_send_sge = 1, .max_recv_sge = 0, .max_inline_data = 0};
  Qp a(ibv_create_qp(bench.pd.get(), &init));
  Qp b(ibv_create_qp(bench.pd.get(), &init));
  bench.connect_both(a.get(), b.get());
  int posted = 0;
  while (bench.post_receive(srq.get(), 0, bench.piece(0, 8)) == 0) ++posted;
  EXPECT_GE(posted, static_cast<int>(kAsked));
  for (int i = 0; i < posted; ++i) {
    ASSERT_EQ(bench.post(a.get(), send_to(1), bench.piece(0, 8)), 0);
    EXPECT_EQ(next_completion(bench.cq.get()).status, IBV_WC_SUCCESS);
  }
  for (int i = 0; i < posted; ++i) EXPECT_EQ(next_completion(receives.get()).status, IBV_WC_SUCCESS);
}

// ibv_create_qp(3): with an SRQ the capacities of a receive queue are ignored.
TEST_F(SharedReceiveQueues, MakeTheCapacitiesOfAReceiveQueueMeaningless) {
  Srq srq = bench.make_srq();
  for (const auto& [requests, sges] :
       {std::pair{1u, 1u}, {UINT32_MAX, 1u}, {1u, UINT32_MAX}, {(1u << 20) + 1, 33u}}) {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = bench.cq.get();
    init.srq = srq.get();
    init.qp_type = IBV_QPT_RC;
    init.cap = {.max_send_wr = 1,
                .max_recv_wr = requests,
                .max_send_sge = 1,
                .max_recv_sge = sges,
                .max_inline_data = 0};
    EXPECT_NE(Qp(ibv_create_qp(bench.pd.get(), &init)), nullptr) << requests << ", " << sges;
    EXPECT_EQ(init.cap.max_recv_wr, 0u);
    init.cap = {.max_send_wr = 1,
                .max_recv_wr = requests,
                .max_send_sge = 1,
                .max_recv_sge = sges,
                .max_inline_data = 0};
    init.srq = nullptr;
    Qp without(ibv_create_qp(bench.pd.get(), &init));
    EXPECT_EQ(without != nullptr, requests == 1 && sges == 1);
  }
}

TEST_F(SharedReceiveQueues, CreatingExtended) {
  Bench other;
  Xrcd domain = bench.make_domain();
  Xrcd foreign = other.make_domain();
  ASSERT_NE(domain, nullptr);
  constexpr uint32_t kXrc =
      IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
  struct Case {
    const char* what;
    uint32_t mask;
    ibv_srq_type type;
    ibv_pd* pd;
    ibv_xrcd* xrcd;
    ibv_cq* cq;
    int error;
  };
  const Case cases[] = {
      {"basic by default", IBV_SRQ_INIT_ATTR_PD, IBV_SRQT_XRC, bench.pd.get(), nullptr, nullptr, 0},
      {"XRC", kXrc, IBV_SRQT_XRC, bench.pd.get(), domain.get(), bench.cq.get(), 0},
      {"XRC without a PD", kXrc & ~uint32_t{IBV_SRQ_INIT_ATTR_PD}, IBV_SRQT_XRC, bench.pd.get(), domain.get(),
       bench.cq.get(), EINVAL},
      {"XRC without a domain", kXrc & ~uint32_t{IBV_SRQ_INIT_ATTR_XRCD}, IBV_SRQT_XRC, bench.pd.get(),
       domain.get(), bench.cq.get(), EINVAL},
      {"XRC without a CQ", kXrc & ~uint32_t{IBV_SRQ_INIT_ATTR_CQ}, IBV_SRQT_XRC, bench.pd.get(), domain.get(),
       bench.cq.get(), EINVAL},
      {"a domain that is null", kXrc, IBV_SRQT_XRC, bench.pd.get(), nullptr, bench.cq.get(), EINVAL},
      {"a CQ that is null", kXrc, IBV_SRQT_XRC, bench.pd.get(), domain.get(), nullptr, EINVAL},
      {"another context's domain", kXrc, IBV_SRQT_XRC, bench.pd.get(), foreign.get(), bench.cq.get(), EINVAL},
      {"another context's CQ", kXrc, IBV_SRQT_XRC, bench.pd.get(), domain.get(), other.cq.get(), EINVAL},
      {"another context's PD", kXrc, IBV_SRQT_XRC, other.pd.get(), domain.get(), bench.cq.get(), EINVAL},
      {"an unknown field", kXrc | 1u << 20, IBV_SRQT_XRC, bench.pd.get(), domain.get(), bench.cq.get(),
       EOPNOTSUPP},
      {"tag matching without tags", kXrc | IBV_SRQ_INIT_ATTR_TM, IBV_SRQT_TM, bench.pd.get(), domain.get(),
       bench.cq.get(), EINVAL},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    ibv_srq_init_attr_ex init{};
    init.attr = {.max_wr = 8, .max_sge = 1, .srq_limit = 0};
    init.comp_mask = c.mask;
    init.srq_type = c.type;
    init.pd = c.pd;
    init.xrcd = c.xrcd;
    init.cq = c.cq;
    errno = 0;
    Srq srq(ibv_create_srq_ex(bench.context.get(), &init));
    EXPECT_EQ(srq == nullptr ? errno : 0, c.error);
    if (srq == nullptr) continue;
    uint32_t number = 0;
    const bool numbered = (c.mask & IBV_SRQ_INIT_ATTR_XRCD) != 0;
    EXPECT_EQ(ibv_get_srq_num(srq.get(), &number), numbered ? 0 : EINVAL);
    EXPECT_EQ(number != 0, numbered);
    EXPECT_LE(number, 0xffffffu);
  }
}

TEST_F(SharedReceiveQueues, Modifying) {
  Srq srq = bench.make_srq(16);
  ASSERT_NE(srq, nullptr);
  for (uint64_t id = 0; id < 5; ++id) ASSERT_EQ(bench.post_receive(srq.get(), id, bench.piece(0, 8)), 0);
  ibv_device_attr device{};
  ASSERT_EQ(ibv_query_device(bench.context.get(), &device), 0);
  const auto most = static_cast<uint32_t>(device.max_srq_wr);
  struct Case {
    const char* what;
    int mask;
    uint32_t requests;
    uint32_t limit;
    int error;
    uint32_t capacity_after;
    uint32_t limit_after;
  };
  constexpr int kBoth = IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT;
  const Case cases[] = {
      {"nothing", 0, 0, 0, 0, 16, 0},
      {"an unknown flag", 1 << 5, 32, 2, EINVAL, 16, 0},
      {"a limit", IBV_SRQ_LIMIT, 0, 3, 0, 16, 3},
      {"a limit above all requests", IBV_SRQ_LIMIT, 0, 17, EINVAL, 16, 3},
      {"no requests", IBV_SRQ_MAX_WR, 0, 0, EINVAL, 16, 3},
      {"too many requests", IBV_SRQ_MAX_WR, most + 1, 0, EINVAL, 16, 3},
      {"fewer than are posted", IBV_SRQ_MAX_WR, 4, 0, EINVAL, 16, 3},
      {"fewer than the limit", IBV_SRQ_MAX_WR, 2, 0, EINVAL, 16, 3},
      {"both, the limit too high for the new size", kBoth, 8, 9, EINVAL, 16, 3},
      {"both, and the limit not above the new size", kBoth, 32, 4, 0, 32, 4},
      {"smaller again", IBV_SRQ_MAX_WR, 8, 0, 0, 8, 4},
      {"no limit", IBV_SRQ_LIMIT, 0, 0, 0, 8, 0},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    ibv_srq_attr attr{.max_wr = c.requests, .max_sge = 0, .srq_limit = c.limit};
    EXPECT_EQ(ibv_modify_srq(srq.get(), &attr, c.mask), c.error);
    ASSERT_EQ(ibv_query_srq(srq.get(), &attr), 0);
    EXPECT_EQ(attr.max_wr, c.capacity_after);
    EXPECT_EQ(attr.srq_limit, c.limit_after);
  }
  EXPECT_FALSE(readable(bench.context->async_fd));
}

TEST_F(SharedReceiveQueues, Posting) {
  Srq srq = bench.make_srq(4);
  for (uint64_t id = 0; id < 4; ++id) EXPECT_EQ(bench.post_receive(srq.get(), id, bench.piece(0, 8)), 0);
  EXPECT_EQ(bench.post_receive(srq.get(), 4, bench.piece(0, 8)), ENOMEM);

  Srq roomy = bench.make_srq(4);
  ibv_sge list[5];
  for (ibv_sge& sge : list) sge = bench.piece(0, 8);
  ibv_recv_wr requests[3] = {};
  for (int i = 0; i < 3; ++i) {
    requests[i].next = i < 2 ? &requests[i + 1] : nullptr;
    requests[i].sg_list = list;
    requests[i].num_sge = i == 1 ? 5 : 1;
  }
  ibv_recv_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_srq_recv(roomy.get(), requests, &bad), EINVAL);
  EXPECT_EQ(bad, &requests[1]) << "those before it are posted";
  ibv_srq_attr attr{.max_wr = 1, .max_sge = 0, .srq_limit = 0};
  EXPECT_EQ(ibv_modify_srq(roomy.get(), &attr, IBV_SRQ_MAX_WR), 0) << "one is there";
  requests[0].num_sge = -1;
  EXPECT_EQ(ibv_post_srq_recv(roomy.get(), requests, &bad), ENOMEM);
}

TEST_F(SharedReceiveQueues, IsBusyWhileAQueuePairUsesIt) {
  Srq srq = bench.make_srq();
  Qp qp = bench.make_qp(IBV_QPT_RC, srq.get());
  ASSERT_NE(qp, nullptr);
  EXPECT_EQ(qp->srq, srq.get());
  EXPECT_EQ(ibv_destroy_srq(srq.get()), EBUSY);
  EXPECT_EQ(ibv_dealloc_pd(bench.pd.get()), EBUSY);
  qp.reset();
}

TEST_F(SharedReceiveQueues, OfAQueuePairMustBeOfItsKindAndContext) {
  Bench other;
  Srq foreign = other.make_srq();
  Xrcd domain = bench.make_domain();
  Srq xrc = bench.make_xrc_srq(domain.get(), bench.cq.get());
  ASSERT_NE(xrc, nullptr);
  for (ibv_srq* wrong : {foreign.get(), xrc.get()}) {
    errno = 0;
    EXPECT_EQ(bench.make_qp(IBV_QPT_RC, wrong), nullptr);
    EXPECT_EQ(errno, EINVAL);
  }
  // Initiators receive nothing, and the kernel does not check their receive attributes.
  Srq basic = bench.make_srq();
  Qp initiator = bench.make_qp(IBV_QPT_XRC_SEND, basic.get());
  EXPECT_NE(initiator, nullptr);
}

TEST_F(SharedReceiveQueues, AQueuePairWithOneHasNoReceivesOfItsOwn) {
  Srq srq = bench.make_srq();
  Qp qp = bench.make_qp(IBV_QPT_RC, srq.get());
  Qp peer = bench.make_qp(IBV_QPT_RC);
  bench.connect_both(qp.get(), peer.get());
  ibv_sge piece = bench.piece(0, 8);
  ibv_recv_wr request{};
  request.sg_list = &piece;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_recv(qp.get(), &request, &bad), EINVAL);
  EXPECT_EQ(bad, &request);
}

// ---- messages

TEST_F(SharedReceiveQueues, ServeSeveralQueuePairs) {
  constexpr uint64_t kQps = 4;
  constexpr uint64_t kEach = 10;
  Srq srq = bench.make_srq();
  std::vector<Qp> senders;
  std::vector<Qp> receivers;
  for (uint64_t i = 0; i < kQps; ++i) {
    receivers.push_back(bench.make_qp(IBV_QPT_RC, srq.get()));
    senders.push_back(bench.make_qp(IBV_QPT_RC));
    bench.connect_both(receivers.back().get(), senders.back().get());
  }
  for (uint64_t id = 0; id < kQps * kEach; ++id) {
    ASSERT_EQ(bench.post_receive(srq.get(), 1000 + id, bench.piece(32768 + id * 64, 64)), 0);
  }
  fill_random(std::span(bench.buffer).first(32768), 1);
  for (uint64_t i = 0; i < kEach; ++i) {
    for (uint64_t q = 0; q < kQps; ++q) {
      ASSERT_EQ(bench.post(senders[q].get(), send_to(q), bench.piece((i * kQps + q) * 64, 64)), 0);
    }
  }
  uint64_t received = 0;
  std::vector<uint64_t> of_qp(kQps);
  for (uint64_t n = 0; n < 2 * kQps * kEach; ++n) {
    const ibv_wc wc = next_completion(bench.cq.get());
    ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
    if (wc.opcode != IBV_WC_RECV) continue;
    ++received;
    for (uint64_t q = 0; q < kQps; ++q) {
      if (receivers[q]->qp_num != wc.qp_num) continue;
      const uint64_t at = (of_qp[q]++ * kQps + q) * 64;
      EXPECT_EQ(
          std::memcmp(bench.buffer.data() + 32768 + (wc.wr_id - 1000) * 64, bench.buffer.data() + at, 64), 0);
    }
  }
  EXPECT_EQ(received, kQps * kEach);
  EXPECT_EQ(of_qp, std::vector<uint64_t>(kQps, kEach));
}

TEST_F(SharedReceiveQueues, TellOnceWhenTheLimitIsReached) {
  Srq srq = bench.make_srq(16);
  Qp receiver = bench.make_qp(IBV_QPT_RC, srq.get());
  Qp sender = bench.make_qp(IBV_QPT_RC);
  bench.connect_both(receiver.get(), sender.get());
  for (uint64_t id = 0; id < 6; ++id) ASSERT_EQ(bench.post_receive(srq.get(), id, bench.piece(0, 64)), 0);
  ibv_srq_attr attr{.max_wr = 0, .max_sge = 0, .srq_limit = 4};
  ASSERT_EQ(ibv_modify_srq(srq.get(), &attr, IBV_SRQ_LIMIT), 0);
  for (uint64_t i = 0; i < 4; ++i) {
    ASSERT_EQ(bench.post(sender.get(), send_to(i), bench.piece(1024, 8)), 0);
    next_completion(bench.cq.get());
    next_completion(bench.cq.get());
    EXPECT_EQ(readable(bench.context->async_fd), i >= 2) << "after " << i + 1;
  }
  ibv_async_event event = next_event(bench.context.get());
  EXPECT_EQ(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
  EXPECT_EQ(event.element.srq, srq.get());
  ibv_ack_async_event(&event);
  EXPECT_FALSE(readable(bench.context->async_fd));
  ASSERT_EQ(ibv_query_srq(srq.get(), &attr), 0);
  EXPECT_EQ(attr.srq_limit, 0u);
}

TEST_F(SharedReceiveQueues, TellAtOnceOfALimitAlreadyReached) {
  Srq srq = bench.make_srq(16, 4);
  ibv_async_event event = next_event(bench.context.get());
  EXPECT_EQ(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
  ibv_ack_async_event(&event);
}

TEST_F(SharedReceiveQueues, GoWithTheirEvents) {
  Srq srq = bench.make_srq(16, 4);
  EXPECT_TRUE(readable(bench.context->async_fd));
  srq.reset();
  EXPECT_FALSE(readable(bench.context->async_fd));
}

TEST_F(SharedReceiveQueues, DestroyingOneWaitsForEventsThatWereTaken) {
  Srq srq = bench.make_srq(16, 4);
  ibv_async_event event = next_event(bench.context.get());
  test::WatchedThread destroyer([&] { srq.reset(); });
  EXPECT_TRUE(destroyer.falls_asleep());
  ibv_ack_async_event(&event);
  destroyer.join();
}

TEST_F(SharedReceiveQueues, TheirQueuePairsTellOfTheLastRequest) {
  Srq srq = bench.make_srq();
  Qp receiver = bench.make_qp(IBV_QPT_RC, srq.get());
  Qp sender = bench.make_qp(IBV_QPT_RC);
  bench.connect_both(receiver.get(), sender.get());
  ASSERT_EQ(bench.post_receive(srq.get(), 1, bench.piece(0, 8)), 0);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(ibv_modify_qp(receiver.get(), &attr, IBV_QP_STATE), 0);
  ibv_async_event event = next_event(bench.context.get());
  EXPECT_EQ(event.event_type, IBV_EVENT_QP_LAST_WQE_REACHED);
  EXPECT_EQ(event.element.qp, receiver.get());
  ibv_ack_async_event(&event);
  ibv_wc wc;
  EXPECT_EQ(ibv_poll_cq(bench.cq.get(), 1, &wc), 0) << "the queue's requests stay";
}

TEST_F(SharedReceiveQueues, MakeTheirSendersWaitWhenTheyAreEmpty) {
  Srq srq = bench.make_srq();
  Qp receiver = bench.make_qp(IBV_QPT_RC, srq.get());
  Qp sender = bench.make_qp(IBV_QPT_RC);
  bench.connect_both(receiver.get(), sender.get());
  ASSERT_EQ(bench.post(sender.get(), send_to(1), bench.piece(1024, 8)), 0);
  ibv_wc wc;
  for (int i = 0; i < 100; ++i) EXPECT_EQ(ibv_poll_cq(bench.cq.get(), 1, &wc), 0);
  ASSERT_EQ(bench.post_receive(srq.get(), 2, bench.piece(0, 8)), 0);
  EXPECT_EQ(next_completion(bench.cq.get()).status, IBV_WC_SUCCESS);
  EXPECT_EQ(next_completion(bench.cq.get()).status, IBV_WC_SUCCESS);
}

TEST_F(SharedReceiveQueues, KeepTheirRequestsWhenResizedAmongMessages) {
  Srq srq = bench.make_srq(8);
  Qp receiver = bench.make_qp(IBV_QPT_RC, srq.get());
  Qp sender = bench.make_qp(IBV_QPT_RC);
  bench.connect_both(receiver.get(), sender.get());
  uint64_t posted = 0;
  uint64_t received = 0;
  for (uint32_t round = 0; round < 20; ++round) {
    while (posted - received < 8) ASSERT_EQ(bench.post_receive(srq.get(), posted++, bench.piece(0, 64)), 0);
    for (uint64_t i = 0; i < 4; ++i)
      ASSERT_EQ(bench.post(sender.get(), send_to(99), bench.piece(1024, 8)), 0);
    ibv_srq_attr attr{.max_wr = round % 2 == 0 ? 64u : 8u, .max_sge = 0, .srq_limit = 0};
    ASSERT_EQ(ibv_modify_srq(srq.get(), &attr, IBV_SRQ_MAX_WR), 0);
    for (uint64_t i = 0; i < 8; ++i) {
      const ibv_wc wc = next_completion(bench.cq.get());
      ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
      if (wc.opcode == IBV_WC_RECV) {
        EXPECT_EQ(wc.wr_id, received++);
      }
    }
  }
}

TEST_F(SharedReceiveQueues, MayBePostedToByManyThreads) {
  constexpr uint64_t kMessages = 600;
  constexpr uint64_t kThreads = 3;
  Srq srq = bench.make_srq(64);
  Qp receiver = bench.make_qp(IBV_QPT_RC, srq.get());
  Qp sender = bench.make_qp(IBV_QPT_RC);
  bench.connect_both(receiver.get(), sender.get());
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = t; i < kMessages;) {
        ibv_sge piece = bench.piece(0, 64);
        ibv_recv_wr request{};
        request.wr_id = i;
        request.sg_list = &piece;
        request.num_sge = 1;
        ibv_recv_wr* bad = nullptr;
        if (ibv_post_srq_recv(srq.get(), &request, &bad) == 0) {
          i += kThreads;
        } else {
          std::this_thread::yield();
        }
      }
    });
  }
  std::vector<bool> seen(kMessages);
  uint64_t received = 0;
  uint64_t sent = 0;
  uint64_t complete = 0;
  while (received < kMessages || complete < kMessages) {
    if (sent < kMessages && sent - complete < 32) {
      ASSERT_EQ(bench.post(sender.get(), send_to(0), bench.piece(1024, 8)), 0);
      ++sent;
      continue;
    }
    const ibv_wc wc = next_completion(bench.cq.get());
    ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
    if (wc.opcode != IBV_WC_RECV) {
      ++complete;
      continue;
    }
    ASSERT_FALSE(seen[wc.wr_id]);
    seen[wc.wr_id] = true;
    ++received;
  }
  for (std::thread& thread : threads) thread.join();
}

// ---- several shards

// Threads that each have a shard with a QP, and all QPs receive from one shared queue.
class ReceiveQueueOfSeveralShards : public ::testing::Test {
 protected:
  static constexpr uint32_t kThreads = 3;
  static constexpr uint32_t kRounds = 100;
  static constexpr uint32_t kAtOnce = 8;  // messages that each thread has in flight
  static constexpr uint32_t kBuffers = 2 * kThreads * kAtOnce;
  static constexpr uint32_t kBytes = 64;

  ReceiveQueueOfSeveralShards() { ::setenv("VERBENA_SHARDS", std::to_string(kThreads).c_str(), 1); }
  ~ReceiveQueueOfSeveralShards() override { ::unsetenv("VERBENA_SHARDS"); }

  void SetUp() override {
    bench = std::make_unique<Bench>();
    srq = bench->make_srq(kBuffers);
    ASSERT_NE(srq, nullptr);
    for (uint32_t id = 0; id < kBuffers; ++id) post(id);
  }
  void post(uint64_t id) {
    posted[id] = true;
    ASSERT_EQ(bench->post_receive(srq.get(), id, bench->piece(id * kBytes, kBytes)), 0);
  }

  Qp make_receiver(ibv_cq* cq) {
    ibv_qp_init_attr init{};
    init.qp_type = IBV_QPT_RC;
    init.send_cq = init.recv_cq = cq;
    init.srq = srq.get();
    init.cap = {
        .max_send_wr = 1, .max_recv_wr = 0, .max_send_sge = 1, .max_recv_sge = 0, .max_inline_data = 0};
    return Qp(ibv_create_qp(bench->pd.get(), &init));
  }

  // Checks that the completed request was posted and not taken by another thread. Returns the number in the
  // message, and posts the request again.
  uint32_t take(const ibv_wc& wc) {
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_LT(wc.wr_id, kBuffers);
    EXPECT_TRUE(posted[wc.wr_id].exchange(false)) << "taken twice";
    uint32_t number = 0;
    std::memcpy(&number, bench->buffer.data() + wc.wr_id * kBytes, sizeof number);
    post(wc.wr_id);
    return number;
  }

  // Runs in each thread: sends messages with the thread's own numbers, and receives them.
  void run(uint32_t thread) {
    Bench own;
    Cq cq(ibv_create_cq(bench->context.get(), 2 * kAtOnce, nullptr, nullptr, 0));
    Qp sender = own.make_qp(IBV_QPT_RC);
    Qp receiver = make_receiver(cq.get());
    ASSERT_NE(sender, nullptr);
    ASSERT_NE(receiver, nullptr);
    own.connect_both(sender.get(), receiver.get());
    slots[thread] = roce::Qpn(receiver->qp_num).slot();
    uint32_t next = thread << 16;
    for (uint32_t round = 0; round < kRounds; ++round) {
      for (uint32_t i = 0; i < kAtOnce; ++i) {
        const uint32_t number = next + i;
        std::memcpy(own.buffer.data() + i * kBytes, &number, sizeof number);
        ASSERT_EQ(own.post(sender.get(), send_to(i), own.piece(i * kBytes, kBytes)), 0);
      }
      // A QP's messages come in order, whichever receive requests they take.
      for (uint32_t i = 0; i < kAtOnce; ++i) ASSERT_EQ(take(next_completion(cq.get())), next + i);
      for (uint32_t i = 0; i < kAtOnce; ++i) ASSERT_EQ(next_completion(own.cq.get()).status, IBV_WC_SUCCESS);
      next += kAtOnce;
    }
    ibv_wc more;
    EXPECT_EQ(ibv_poll_cq(cq.get(), 1, &more), 0) << "a message came twice";
  }

  std::unique_ptr<Bench> bench;
  Srq srq;
  std::array<std::atomic<bool>, kBuffers> posted{};
  std::array<uint32_t, kThreads> slots{};
};

TEST_F(ReceiveQueueOfSeveralShards, GivesEachMessageOneRequest) {
  std::vector<std::thread> threads;
  for (uint32_t thread = 0; thread < kThreads; ++thread)
    threads.emplace_back([this, thread] { run(thread); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(std::set<uint32_t>(slots.begin(), slots.end()).size(), kThreads) << "a shard each";
  for (const auto& waits : posted) EXPECT_TRUE(waits) << "a request was lost";
}

}  // namespace
}  // namespace verbena::adapter::testing
