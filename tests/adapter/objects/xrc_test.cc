// SPDX-License-Identifier: Apache-2.0
// XRC through the verbs: domains, objects shared through them, errors (ibv_open_xrcd(3), ibv_open_qp(3),
// ibv_create_qp_ex(3), the kernel's uverbs), messages.
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

#include "adapter/objects/support/services.h"
#include "base/temporary_file.h"
#include "base/unique_fd.h"

namespace verbena::adapter::testing {
namespace {

using test::temporary_file;

uint32_t number_of(ibv_srq* srq) {
  uint32_t number = 0;
  EXPECT_EQ(ibv_get_srq_num(srq, &number), 0);
  return number;
}

class Xrc : public ::testing::Test {
 protected:
  Bench bench;
};

// ---- domains

TEST_F(Xrc, OpeningDomains) {
  const UniqueFd file = temporary_file();
  const UniqueFd fresh = temporary_file();
  const UniqueFd closed = temporary_file();
  const int gone = ::fcntl(closed.get(), F_DUPFD, 500);  // a high number, which is not reused meanwhile
  ::close(gone);
  Xrcd first = bench.make_domain(file.get());
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->context, bench.context.get());
  constexpr uint32_t kBoth = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  struct Case {
    const char* what;
    uint32_t mask;
    int fd;
    int flags;
    int error;
  };
  const Case cases[] = {
      {"no file", kBoth, -1, O_CREAT, 0},
      {"a file that has one", kBoth, file.get(), O_CREAT, 0},
      {"the same without creating", kBoth, file.get(), 0, 0},
      {"a file that has none, without creating", kBoth, fresh.get(), 0, EAGAIN},
      {"a file that has one, exclusively", kBoth, file.get(), O_CREAT | O_EXCL, EINVAL},
      {"a file that has none, exclusively", kBoth, fresh.get(), O_CREAT | O_EXCL, 0},
      {"a descriptor that is closed", kBoth, gone, O_CREAT, EBADF},
      {"without saying which file", IBV_XRCD_INIT_ATTR_OFLAGS, -1, O_CREAT, EINVAL},
      {"without saying how", IBV_XRCD_INIT_ATTR_FD, -1, O_CREAT, EINVAL},
      {"an unknown field", kBoth | IBV_XRCD_INIT_ATTR_RESERVED, -1, O_CREAT, EOPNOTSUPP},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    ibv_xrcd_init_attr init{};
    init.comp_mask = c.mask;
    init.fd = c.fd;
    init.oflags = c.flags;
    errno = 0;
    Xrcd domain(ibv_open_xrcd(bench.context.get(), &init));
    EXPECT_EQ(domain == nullptr ? errno : 0, c.error);
  }
}

TEST_F(Xrc, ADomainEndsWithItsLastHandle) {
  const UniqueFd file = temporary_file();
  Xrcd one = bench.make_domain(file.get());
  Xrcd two = bench.make_domain(file.get(), 0);
  ASSERT_NE(two, nullptr);
  one.reset();
  EXPECT_NE(bench.make_domain(file.get(), 0), nullptr);
  two.reset();
  errno = 0;
  EXPECT_EQ(bench.make_domain(file.get(), 0), nullptr);
  EXPECT_EQ(errno, EAGAIN);
}

TEST_F(Xrc, ADomainInUseIsBusy) {
  const UniqueFd file = temporary_file();
  Xrcd domain = bench.make_domain(file.get());
  Xrcd idle = bench.make_domain(file.get());
  {
    Srq srq = bench.make_xrc_srq(domain.get(), bench.cq.get());
    ASSERT_NE(srq, nullptr);
    EXPECT_EQ(ibv_close_xrcd(domain.get()), EBUSY);
    EXPECT_EQ(ibv_destroy_cq(bench.cq.get()), EBUSY) << "the queue's receives complete there";
  }
  Qp target = bench.make_target(domain.get());
  ASSERT_NE(target, nullptr);
  EXPECT_EQ(ibv_close_xrcd(domain.get()), EBUSY);
  idle.reset();  // no object was made with this handle
}

// ---- queue pairs

TEST_F(Xrc, CreatingQueuePairs) {
  Bench other;
  Xrcd domain = bench.make_domain();
  Xrcd foreign = other.make_domain();
  struct Case {
    const char* what;
    ibv_qp_type type;
    uint32_t mask;
    ibv_pd* pd;
    ibv_xrcd* xrcd;
    ibv_cq* cq;
    int error;
  };
  const Case cases[] = {
      {"a target", IBV_QPT_XRC_RECV, IBV_QP_INIT_ATTR_XRCD, nullptr, domain.get(), nullptr, 0},
      {"a target that names a PD, which it does not use", IBV_QPT_XRC_RECV,
       IBV_QP_INIT_ATTR_XRCD | IBV_QP_INIT_ATTR_PD, reinterpret_cast<ibv_pd*>(8), domain.get(), nullptr, 0},
      {"a target without a domain", IBV_QPT_XRC_RECV, 0, nullptr, nullptr, nullptr, EINVAL},
      {"a target whose domain is null", IBV_QPT_XRC_RECV, IBV_QP_INIT_ATTR_XRCD, nullptr, nullptr, nullptr,
       EINVAL},
      {"a target of another context's domain", IBV_QPT_XRC_RECV, IBV_QP_INIT_ATTR_XRCD, nullptr,
       foreign.get(), nullptr, EINVAL},
      {"an initiator", IBV_QPT_XRC_SEND, IBV_QP_INIT_ATTR_PD, bench.pd.get(), nullptr, bench.cq.get(), 0},
      {"an initiator without a PD", IBV_QPT_XRC_SEND, 0, nullptr, nullptr, bench.cq.get(), EINVAL},
      {"an initiator without a CQ", IBV_QPT_XRC_SEND, IBV_QP_INIT_ATTR_PD, bench.pd.get(), nullptr, nullptr,
       EINVAL},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    ibv_qp_init_attr_ex init{};
    init.qp_type = c.type;
    init.comp_mask = c.mask;
    init.pd = c.pd;
    init.xrcd = c.xrcd;
    init.send_cq = c.cq;
    init.cap = {
        .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 2, .max_recv_sge = 2, .max_inline_data = 0};
    errno = 0;
    Qp qp(ibv_create_qp_ex(bench.context.get(), &init));
    EXPECT_EQ(qp == nullptr ? errno : 0, c.error);
    if (qp == nullptr) continue;
    EXPECT_EQ(init.cap.max_recv_wr, 0u) << "neither half has receives of its own";
    EXPECT_EQ(init.cap.max_send_wr, c.type == IBV_QPT_XRC_SEND ? 8u : 0u);
    EXPECT_EQ(qp->qp_type, c.type);
    EXPECT_EQ(qp->recv_cq, nullptr);
  }
}

TEST_F(Xrc, NeitherHalfTakesWhatItHasNoQueueFor) {
  Xrcd domain = bench.make_domain();
  Qp target = bench.make_target(domain.get());
  Qp initiator = bench.make_qp(IBV_QPT_XRC_SEND);
  bench.connect_both(target.get(), initiator.get());
  ibv_sge piece = bench.piece(0, 8);
  EXPECT_EQ(bench.post(target.get(), send_to(1), piece), EINVAL);
  for (ibv_qp* qp : {target.get(), initiator.get()}) {
    ibv_recv_wr request{};
    request.sg_list = &piece;
    request.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    EXPECT_EQ(ibv_post_recv(qp, &request, &bad), EINVAL);
    EXPECT_EQ(bad, &request);
  }
}

// ---- messages

TEST_F(Xrc, EachMessageReachesTheQueueItNames) {
  Xrcd domain = bench.make_domain();
  Cq first_cq(ibv_create_cq(bench.context.get(), 16, nullptr, nullptr, 0));
  Cq second_cq(ibv_create_cq(bench.context.get(), 16, nullptr, nullptr, 0));
  Srq first = bench.make_xrc_srq(domain.get(), first_cq.get());
  Srq second = bench.make_xrc_srq(domain.get(), second_cq.get());
  ASSERT_NE(number_of(first.get()), number_of(second.get()));
  Qp target = bench.make_target(domain.get());
  Qp initiator = bench.make_qp(IBV_QPT_XRC_SEND);
  bench.connect_both(target.get(), initiator.get());
  for (uint64_t i = 0; i < 4; ++i) {
    ASSERT_EQ(bench.post_receive(first.get(), 100 + i, bench.piece(8192 + i * 64, 64)), 0);
    ASSERT_EQ(bench.post_receive(second.get(), 200 + i, bench.piece(16384 + i * 64, 64)), 0);
  }
  fill_random(std::span(bench.buffer).first(4096), 3);
  for (uint64_t i = 0; i < 8; ++i) {
    ibv_srq* to = i % 2 == 0 ? first.get() : second.get();
    ASSERT_EQ(bench.post(initiator.get(), send_to(i, number_of(to)), bench.piece(i * 64, 64)), 0);
    EXPECT_EQ(next_completion(bench.cq.get()).status, IBV_WC_SUCCESS);
    const ibv_wc wc = next_completion(i % 2 == 0 ? first_cq.get() : second_cq.get());
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.wr_id, (i % 2 == 0 ? 100 : 200) + i / 2);
    EXPECT_EQ(wc.qp_num, target->qp_num);
    EXPECT_EQ(wc.byte_len, 64u);
    const size_t at = (i % 2 == 0 ? 8192 : 16384) + i / 2 * 64;
    EXPECT_EQ(std::memcmp(bench.buffer.data() + at, bench.buffer.data() + i * 64, 64), 0);
  }
}

TEST_F(Xrc, WritesReadsAndCounts) {
  Xrcd domain = bench.make_domain();
  Srq srq = bench.make_xrc_srq(domain.get(), bench.cq.get());
  Qp target = bench.make_target(domain.get());
  Qp initiator = bench.make_qp(IBV_QPT_XRC_SEND);
  bench.connect_both(target.get(), initiator.get());
  fill_random(std::span(bench.buffer).first(8192), 4);
  const auto request = [&](ibv_wr_opcode opcode) {
    ibv_send_wr wr = send_to(1, number_of(srq.get()));
    wr.opcode = opcode;
    const uint64_t address = reinterpret_cast<uint64_t>(bench.buffer.data()) + 16384;
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
      wr.wr.atomic.remote_addr = address;
      wr.wr.atomic.rkey = bench.mr->rkey;
      wr.wr.atomic.compare_add = 5;
    } else {
      wr.wr.rdma.remote_addr = address;
      wr.wr.rdma.rkey = bench.mr->rkey;
    }
    return wr;
  };
  ASSERT_EQ(bench.post(initiator.get(), request(IBV_WR_RDMA_WRITE), bench.piece(0, 5000)), 0);
  EXPECT_EQ(next_completion(bench.cq.get()).status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(bench.buffer.data() + 16384, bench.buffer.data(), 5000), 0);
  ASSERT_EQ(bench.post(initiator.get(), request(IBV_WR_RDMA_READ), bench.piece(32768, 5000)), 0);
  EXPECT_EQ(next_completion(bench.cq.get()).status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(bench.buffer.data() + 32768, bench.buffer.data(), 5000), 0);
  uint64_t before;
  std::memcpy(&before, bench.buffer.data() + 16384, 8);
  ASSERT_EQ(bench.post(initiator.get(), request(IBV_WR_ATOMIC_FETCH_AND_ADD), bench.piece(0, 8)), 0);
  EXPECT_EQ(next_completion(bench.cq.get()).status, IBV_WC_SUCCESS);
  uint64_t after;
  std::memcpy(&after, bench.buffer.data() + 16384, 8);
  EXPECT_EQ(after, before + 5);
}

TEST_F(Xrc, AMessageForNoQueueFailsAndIsToldOf) {
  Xrcd domain = bench.make_domain();
  Srq srq = bench.make_xrc_srq(domain.get(), bench.cq.get());
  const uint32_t number = number_of(srq.get());
  srq.reset();
  Qp target = bench.make_target(domain.get());
  Qp initiator = bench.make_qp(IBV_QPT_XRC_SEND);
  bench.connect_both(target.get(), initiator.get());
  ASSERT_EQ(bench.post(initiator.get(), send_to(1, number), bench.piece(0, 8)), 0);
  EXPECT_EQ(next_completion(bench.cq.get()).status, IBV_WC_REM_INV_REQ_ERR);
  ibv_async_event event = next_event(bench.context.get());
  EXPECT_EQ(event.event_type, IBV_EVENT_QP_REQ_ERR);
  EXPECT_EQ(event.element.qp, target.get());
  ibv_ack_async_event(&event);
}

TEST_F(Xrc, AMessageForAQueueOfAnotherDomainFails) {
  Xrcd domain = bench.make_domain();
  Xrcd elsewhere = bench.make_domain();
  Srq srq = bench.make_xrc_srq(elsewhere.get(), bench.cq.get());
  ASSERT_EQ(bench.post_receive(srq.get(), 1, bench.piece(0, 8)), 0);
  Qp target = bench.make_target(domain.get());
  Qp initiator = bench.make_qp(IBV_QPT_XRC_SEND);
  bench.connect_both(target.get(), initiator.get());
  ASSERT_EQ(bench.post(initiator.get(), send_to(1, number_of(srq.get())), bench.piece(0, 8)), 0);
  EXPECT_EQ(next_completion(bench.cq.get()).status, IBV_WC_REM_INV_REQ_ERR);
  ibv_wc wc;
  EXPECT_EQ(ibv_poll_cq(bench.cq.get(), 1, &wc), 0);
}

// ---- objects that two contexts share

TEST_F(Xrc, TwoContextsShareADomainByItsFile) {
  Bench other;
  const UniqueFd file = temporary_file();
  const UniqueFd same(::dup(file.get()));
  Xrcd here = bench.make_domain(file.get());
  Xrcd there = other.make_domain(same.get(), 0);
  ASSERT_NE(there, nullptr);
  // One context makes the target, the other makes the queue.
  Qp target = bench.make_target(here.get());
  Srq srq = other.make_xrc_srq(there.get(), other.cq.get());
  Qp initiator = bench.make_qp(IBV_QPT_XRC_SEND);
  bench.connect_both(target.get(), initiator.get());
  ASSERT_EQ(other.post_receive(srq.get(), 7, other.piece(0, 64)), 0);
  fill_random(bench.buffer, 5);
  ASSERT_EQ(bench.post(initiator.get(), send_to(1, number_of(srq.get())), bench.piece(0, 64)), 0);
  EXPECT_EQ(next_completion(bench.cq.get()).status, IBV_WC_SUCCESS);
  const ibv_wc wc = next_completion(other.cq.get());
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.wr_id, 7u);
  EXPECT_EQ(std::memcmp(other.buffer.data(), bench.buffer.data(), 64), 0);
}

TEST_F(Xrc, DomainsWithoutAFileAreNobodyElses) {
  Xrcd one = bench.make_domain();
  Xrcd two = bench.make_domain();
  Qp target = bench.make_target(one.get());
  ibv_qp_open_attr open{};
  open.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
  open.qp_num = target->qp_num;
  open.qp_type = IBV_QPT_XRC_RECV;
  open.xrcd = two.get();
  errno = 0;
  EXPECT_EQ(ibv_open_qp(bench.context.get(), &open), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

// ---- ibv_open_qp

TEST_F(Xrc, OpeningQueuePairs) {
  Bench other;
  const UniqueFd file = temporary_file();
  Xrcd domain = bench.make_domain(file.get());
  Xrcd foreign = other.make_domain(file.get());
  Qp target = bench.make_target(domain.get());
  Qp initiator = bench.make_qp(IBV_QPT_XRC_SEND);
  constexpr uint32_t kAll = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
  struct Case {
    const char* what;
    uint32_t mask;
    uint32_t number;
    ibv_xrcd* xrcd;
    ibv_qp_type type;
    int error;
  };
  const Case cases[] = {
      {"a target", kAll, target->qp_num, domain.get(), IBV_QPT_XRC_RECV, 0},
      {"and its context", kAll | IBV_QP_OPEN_ATTR_CONTEXT, target->qp_num, domain.get(), IBV_QPT_XRC_RECV, 0},
      {"no such number", kAll, target->qp_num ^ 1, domain.get(), IBV_QPT_XRC_RECV, EINVAL},
      {"a number of another process's share", kAll, target->qp_num ^ 1u << 20, domain.get(), IBV_QPT_XRC_RECV,
       EOPNOTSUPP},
      {"a number beyond all", kAll, 1u << 24, domain.get(), IBV_QPT_XRC_RECV, EINVAL},
      {"an initiator", kAll, initiator->qp_num, domain.get(), IBV_QPT_XRC_SEND, EINVAL},
      {"an initiator as a target", kAll, initiator->qp_num, domain.get(), IBV_QPT_XRC_RECV, EINVAL},
      {"another type", kAll, target->qp_num, domain.get(), IBV_QPT_RC, EINVAL},
      {"another context's domain", kAll, target->qp_num, foreign.get(), IBV_QPT_XRC_RECV, EINVAL},
      {"no domain", kAll, target->qp_num, nullptr, IBV_QPT_XRC_RECV, EINVAL},
      {"without the number", kAll & ~uint32_t{IBV_QP_OPEN_ATTR_NUM}, target->qp_num, domain.get(),
       IBV_QPT_XRC_RECV, EINVAL},
      {"without the type", kAll & ~uint32_t{IBV_QP_OPEN_ATTR_TYPE}, target->qp_num, domain.get(),
       IBV_QPT_XRC_RECV, EINVAL},
      {"an unknown field", kAll | IBV_QP_OPEN_ATTR_RESERVED, target->qp_num, domain.get(), IBV_QPT_XRC_RECV,
       EOPNOTSUPP},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    int its_context = 0;
    ibv_qp_open_attr open{};
    open.comp_mask = c.mask;
    open.qp_num = c.number;
    open.xrcd = c.xrcd;
    open.qp_context = &its_context;
    open.qp_type = c.type;
    errno = 0;
    Qp qp(ibv_open_qp(bench.context.get(), &open));
    EXPECT_EQ(qp == nullptr ? errno : 0, c.error);
    if (qp == nullptr) continue;
    EXPECT_EQ(qp->qp_num, target->qp_num);
    EXPECT_EQ(qp->qp_type, IBV_QPT_XRC_RECV);
    EXPECT_EQ(qp->qp_context, &its_context) << "ibv_cmd_open_qp() does not look at the mask for it";
  }
}

class OpenedTarget : public Xrc {
 protected:
  static Qp open(Bench& where, ibv_xrcd* xrcd, uint32_t number) {
    ibv_qp_open_attr attr{};
    attr.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
    attr.qp_num = number;
    attr.xrcd = xrcd;
    attr.qp_type = IBV_QPT_XRC_RECV;
    return Qp(ibv_open_qp(where.context.get(), &attr));
  }

  Bench other;
  UniqueFd file = temporary_file();
  Xrcd domain = bench.make_domain(file.get());
  Xrcd shared = other.make_domain(file.get());
  Qp target = bench.make_target(domain.get());
  Qp opened = open(other, shared.get(), target->qp_num);
};

TEST_F(OpenedTarget, IsTheSameQueuePair) {
  ASSERT_NE(opened, nullptr);
  Qp initiator = bench.make_qp(IBV_QPT_XRC_SEND);
  bench.connect_both(opened.get(), initiator.get());  // a change through one handle ...
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(ibv_query_qp(target.get(), &attr, IBV_QP_STATE | IBV_QP_DEST_QPN, &init), 0);
  EXPECT_EQ(attr.qp_state, IBV_QPS_RTS);  // ... is visible through the other
  EXPECT_EQ(attr.dest_qp_num, initiator->qp_num);
}

TEST_F(OpenedTarget, OutlivesTheHandleThatMadeIt) {
  Srq srq = other.make_xrc_srq(shared.get(), other.cq.get());
  Qp initiator = bench.make_qp(IBV_QPT_XRC_SEND);
  bench.connect_both(target.get(), initiator.get());
  target.reset();
  domain.reset();
  ASSERT_EQ(other.post_receive(srq.get(), 7, other.piece(0, 64)), 0);
  ASSERT_EQ(bench.post(initiator.get(), send_to(1, number_of(srq.get())), bench.piece(0, 64)), 0);
  EXPECT_EQ(next_completion(bench.cq.get()).status, IBV_WC_SUCCESS);
  EXPECT_EQ(next_completion(other.cq.get()).wr_id, 7u);
}

TEST_F(OpenedTarget, EndsWithItsLastHandle) {
  const uint32_t number = target->qp_num;
  target.reset();
  EXPECT_NE(open(other, shared.get(), number), nullptr);
  opened.reset();
  EXPECT_EQ(open(other, shared.get(), number), nullptr);
}

TEST_F(OpenedTarget, TellsEveryHandleOfItsEvents) {
  Qp initiator = bench.make_qp(IBV_QPT_XRC_SEND);
  bench.connect_both(target.get(), initiator.get());
  ASSERT_EQ(bench.post(initiator.get(), send_to(1, 0x123), bench.piece(0, 8)), 0);
  EXPECT_EQ(next_completion(bench.cq.get()).status, IBV_WC_REM_INV_REQ_ERR);
  ibv_async_event event = next_event(bench.context.get());
  EXPECT_EQ(event.event_type, IBV_EVENT_QP_REQ_ERR);
  EXPECT_EQ(event.element.qp, target.get());
  ibv_ack_async_event(&event);
  event = next_event(other.context.get());
  EXPECT_EQ(event.event_type, IBV_EVENT_QP_REQ_ERR);
  EXPECT_EQ(event.element.qp, opened.get());
  ibv_ack_async_event(&event);
}

TEST_F(OpenedTarget, ClosingAHandleTakesItsEventsAlong) {
  Qp initiator = bench.make_qp(IBV_QPT_XRC_SEND);
  bench.connect_both(target.get(), initiator.get());
  ASSERT_EQ(bench.post(initiator.get(), send_to(1, 0x123), bench.piece(0, 8)), 0);
  EXPECT_EQ(next_completion(bench.cq.get()).status, IBV_WC_REM_INV_REQ_ERR);
  EXPECT_TRUE(readable(other.context->async_fd, 10'000));
  opened.reset();
  EXPECT_FALSE(readable(other.context->async_fd));
  EXPECT_TRUE(readable(bench.context->async_fd));
}

}  // namespace
}  // namespace verbena::adapter::testing
