// SPDX-License-Identifier: Apache-2.0
// Memory windows: bind and invalidate requests of the QP, and invalidation by its peer.
#include "adapter/memory/window.h"

#include "adapter/transport/support/requester_test.h"
#include "adapter/transport/support/responder_test.h"
#include "adapter/transport/uc.h"

namespace verbena::transport {
namespace {

using testing::Contains;
using testing::ElementsAre;
using Op = roce::Operation;

constexpr memory::Access kBindable = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;

// A region that can be bound and a type 2 window for it, at either end.
struct Windowed {
  explicit Windowed(TestMemory& memory)
      : buffer(memory.add(4096, kBindable)), window(memory.add_window(memory::RegionKind::kWindow2)) {
    buffer.fill(5);
    mr.lkey = buffer.key();
    mw.rkey = window.key;
  }

  ibv_send_wr bind(uint64_t wr_id, unsigned access = IBV_ACCESS_REMOTE_WRITE, unsigned flags = 0) {
    ibv_send_wr wr{};
    wr.wr_id = wr_id;
    wr.opcode = IBV_WR_BIND_MW;
    wr.send_flags = flags;
    mw.rkey = window.key;
    wr.bind_mw = {&mw, ibv_inc_rkey(mw.rkey), {&mr, buffer.address(), 1000, access}};
    return wr;
  }
  static ibv_send_wr invalidate(uint64_t wr_id, uint32_t key, unsigned flags = 0) {
    ibv_send_wr wr{};
    wr.wr_id = wr_id;
    wr.opcode = IBV_WR_LOCAL_INV;
    wr.send_flags = flags;
    wr.invalidate_rkey = key;
    return wr;
  }
  bool is_bound() const { return window.parent != nullptr; }

  Buffer& buffer;
  memory::Region& window;
  ibv_mr mr{};
  ibv_mw mw{};
};

// ---- requester

class WindowRequests : public RequesterTest {
 protected:
  Windowed w{e.memory};
};

TEST_F(WindowRequests, AreExecutedWithoutAPacket) {
  ASSERT_TRUE(post_send(*e.qp, w.bind(1)));
  EXPECT_TRUE(e.transmitted().empty());
  EXPECT_TRUE(w.is_bound());
  EXPECT_EQ(w.window.qpn, 0x11u);
  EXPECT_EQ(e.sent().opcode, IBV_WC_BIND_MW);
  ASSERT_TRUE(post_send(*e.qp, Windowed::invalidate(2, w.window.key)));
  EXPECT_TRUE(e.transmitted().empty());
  EXPECT_FALSE(w.is_bound());
  EXPECT_EQ(e.sent().opcode, IBV_WC_LOCAL_INV);
}

TEST_F(WindowRequests, CompleteInTheirTurn) {
  post(IBV_WR_SEND, 10);
  ASSERT_TRUE(post_send(*e.qp, w.bind(7)));
  post(IBV_WR_SEND, 10);
  EXPECT_EQ(e.transmitted().size(), 2u);
  EXPECT_TRUE(w.is_bound()) << "executed when its turn to be sent came";
  expect_none_sent();
  acknowledge(100);
  expect_sent(1);
  expect_sent(7);
  expect_none_sent();
  acknowledge(101);
  expect_sent(2);
}

TEST_F(WindowRequests, AreNotExecutedAgainAfterALoss) {
  post(IBV_WR_SEND, 10);
  ASSERT_TRUE(post_send(*e.qp, w.bind(7)));
  post(IBV_WR_SEND, 10);
  e.transmitted();
  const uint32_t key = w.window.key;
  nak(100, NakCode::kSequenceError);
  EXPECT_EQ(e.transmitted().size(), 2u);
  EXPECT_EQ(w.window.key, key);
  acknowledge(101);
  expect_sent(1);
  expect_sent(7);
  expect_sent(2);
}

TEST_F(WindowRequests, WaitBehindAFenceForReads) {
  post(IBV_WR_RDMA_READ, 10);
  ASSERT_TRUE(post_send(*e.qp, w.bind(7, IBV_ACCESS_REMOTE_WRITE, IBV_SEND_FENCE)));
  e.transmitted();
  EXPECT_FALSE(w.is_bound());
  std::byte data[10]{};
  respond(Op::kReadResponseOnly, 100, data);
  e.transmitted();
  EXPECT_TRUE(w.is_bound());
}

TEST_F(WindowRequests, ThatFailEndTheQp) {
  ASSERT_TRUE(post_send(*e.qp, w.bind(7, IBV_ACCESS_ON_DEMAND)));
  post(IBV_WR_SEND, 10);
  EXPECT_TRUE(e.transmitted().empty());
  expect_sent(7, IBV_WC_MW_BIND_ERR);
  expect_sent(1, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(e.qp->state(), IBV_QPS_ERR);
}

TEST_F(WindowRequests, ThatFailDoSoAfterThoseBeforeThem) {
  post(IBV_WR_SEND, 10);
  ASSERT_TRUE(post_send(*e.qp, Windowed::invalidate(7, 0x1234)));
  EXPECT_EQ(e.transmitted().size(), 1u);
  expect_none_sent();
  acknowledge(100);
  e.transmitted();
  expect_sent(1);
  expect_sent(7, IBV_WC_MW_BIND_ERR);
}

TEST_F(WindowRequests, ByTheirHundredsTakeNoPsns) {
  for (uint64_t i = 0; i < 20; ++i) {
    ASSERT_TRUE(post_send(*e.qp, w.bind(10 + i)));
    EXPECT_TRUE(e.transmitted().empty());
    ASSERT_TRUE(w.is_bound());
    ASSERT_TRUE(post_send(*e.qp, Windowed::invalidate(50 + i, w.window.key)));
    EXPECT_TRUE(e.transmitted().empty());
    ASSERT_FALSE(w.is_bound());
    expect_sent(10 + i);
    expect_sent(50 + i);
  }
  post(IBV_WR_SEND, 1);
  EXPECT_THAT(psns(e.transmitted()), ElementsAre(100));
}

// ---- while other processes access the window directly

// Other processes' accesses to the memory, controlled by the test.
class Visitors final : public memory::KeyPublisher {
 public:
  void publish(const memory::Opening&) override {}
  void withdraw(uint32_t) override {}
  void await_users() override {}
  uint64_t users() override { return is_one_there ? ++asked : 0; }
  bool are_gone(uint64_t) override { return !is_one_there; }

  bool is_one_there = false;
  uint64_t asked = 0;
};

class VisitedWindow : public WindowRequests {
 protected:
  void SetUp() override {
    WindowRequests::SetUp();
    e.memory.keys().set_publisher(visitors);
    ASSERT_TRUE(post_send(*e.qp, w.bind(1)));
    EXPECT_TRUE(e.transmitted().empty());
    expect_sent(1);
    visitors.is_one_there = true;
  }
  void invalidate(uint64_t wr_id) {
    ASSERT_TRUE(post_send(*e.qp, Windowed::invalidate(wr_id, w.window.key)));
  }
  Visitors visitors;
};

TEST_F(VisitedWindow, IsInvalidAtOnceAndSaysSoWhenNobodyIsThereAnyMore) {
  invalidate(7);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(e.transmit(), TransmitResult::kMore);
    EXPECT_FALSE(w.is_bound());
    expect_none_sent();
  }
  EXPECT_EQ(visitors.asked, 1u) << "those who come later are none of it";
  visitors.is_one_there = false;
  EXPECT_EQ(e.transmit(), TransmitResult::kIdle);
  expect_sent(7);
}

TEST_F(VisitedWindow, HoldsUpWhatFollows) {
  invalidate(7);
  post(IBV_WR_SEND, 10);
  EXPECT_TRUE(e.transmitted().empty());
  visitors.is_one_there = false;
  EXPECT_THAT(operations(e.transmitted()), ElementsAre(Op::kSendOnly));
  expect_sent(7);
}

TEST_F(VisitedWindow, HoldsUpNoAcknowledgement) {
  ibv_recv_wr receive{};
  ASSERT_TRUE(post_recv(*e.qp, receive));
  invalidate(7);
  e.transmit();
  roce::Headers headers = rc_headers(Op::kSendOnly, 200);
  headers.ack_request = true;
  e.receive(headers);
  EXPECT_THAT(operations(e.transmitted()), ElementsAre(Op::kAcknowledge));
  expect_none_sent();
}

TEST_F(VisitedWindow, IsNotInvalidatedAgainAfterALoss) {
  post(IBV_WR_SEND, 10);
  invalidate(7);
  e.transmitted();
  nak(100, NakCode::kSequenceError);
  EXPECT_THAT(psns(e.transmitted()), ElementsAre(100));
  acknowledge(100);
  expect_sent(1);
  expect_none_sent();
  visitors.is_one_there = false;
  e.transmit();
  expect_sent(7);
  EXPECT_EQ(visitors.asked, 1u);
}

TEST_F(VisitedWindow, IsNotWaitedForInError) {
  invalidate(7);
  e.transmit();
  e.qp->enter(IBV_QPS_ERR);
  EXPECT_TRUE(e.transmitted().empty());
  expect_sent(7, IBV_WC_WR_FLUSH_ERR);
}

TEST_F(VisitedWindow, IsWaitedForBeforeTheQueueIsDrained) {
  e.qp->attributes().notify_drained = true;
  invalidate(7);
  e.transmit();
  e.qp->enter(IBV_QPS_SQD);
  e.transmit();
  EXPECT_THAT(e.log.events, testing::IsEmpty());
  visitors.is_one_there = false;
  e.transmit();
  expect_sent(7);
  EXPECT_THAT(e.log.events, ElementsAre(IBV_EVENT_SQ_DRAINED));
}

TEST(VisitedWindowOverUc, IsWaitedForAsOverRc) {
  Endpoint<UcQueuePair> e;
  e.bring_up();
  Windowed w{e.memory};
  Visitors visitors;
  e.memory.keys().set_publisher(visitors);
  ASSERT_TRUE(post_send(*e.qp, w.bind(1)));
  EXPECT_TRUE(e.transmitted().empty());
  EXPECT_EQ(e.sent().opcode, IBV_WC_BIND_MW);
  visitors.is_one_there = true;
  e.qp->attributes().notify_drained = true;
  ASSERT_TRUE(post_send(*e.qp, Windowed::invalidate(2, w.window.key)));
  EXPECT_TRUE(e.transmitted().empty());
  EXPECT_FALSE(w.is_bound());
  e.qp->enter(IBV_QPS_SQD);
  EXPECT_TRUE(e.transmitted().empty());
  EXPECT_THAT(e.log.events, testing::IsEmpty());
  EXPECT_EQ(visitors.asked, 1u);
  visitors.is_one_there = false;
  EXPECT_TRUE(e.transmitted().empty());
  EXPECT_EQ(e.sent().opcode, IBV_WC_LOCAL_INV);
  EXPECT_THAT(e.log.events, ElementsAre(IBV_EVENT_SQ_DRAINED));
}

TEST_F(WindowRequests, CarryTheKeyThatThePeerShallInvalidate) {
  ibv_send_wr wr = request(IBV_WR_SEND_WITH_INV, 300);
  wr.invalidate_rkey = 0x01020304;
  ASSERT_TRUE(post_send(*e.qp, wr));
  const auto packets = e.transmitted();
  EXPECT_THAT(operations(packets), ElementsAre(Op::kSendFirst, Op::kSendLastInvalidate));
  EXPECT_EQ(packets[1].headers.invalidate_rkey, 0x01020304u);
}

TEST(WindowRequestsOverUc, AreExecutedInTheirTurnAndFailTheSendQueueAlone) {
  Endpoint<UcQueuePair> e;
  e.bring_up();
  Windowed w{e.memory};
  ASSERT_TRUE(post_send(*e.qp, w.bind(1)));
  EXPECT_TRUE(e.transmitted().empty());
  EXPECT_TRUE(w.is_bound());
  EXPECT_EQ(e.sent().opcode, IBV_WC_BIND_MW);
  ASSERT_TRUE(post_send(*e.qp, Windowed::invalidate(2, w.window.key)));
  ASSERT_TRUE(post_send(*e.qp, Windowed::invalidate(3, 0x1234)));
  EXPECT_TRUE(e.transmitted().empty());
  EXPECT_FALSE(w.is_bound());
  EXPECT_EQ(e.sent().status, IBV_WC_SUCCESS);
  EXPECT_EQ(e.sent().status, IBV_WC_MW_BIND_ERR);
  EXPECT_EQ(e.qp->state(), IBV_QPS_SQE);
}

// ---- responder

class WindowsOfAResponder : public ResponderTest {
 protected:
  void SetUp() override {
    ResponderTest::SetUp();
    ASSERT_TRUE(bind(IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC, 0x11));
  }
  bool bind(memory::Access access, uint32_t qpn) {
    return memory::bind_window(e.memory.keys(),
                               {.window_key = w.window.key,
                                .new_key = w.window.key + 1,
                                .region_key = w.buffer.key(),
                                .address = w.buffer.address(256),
                                .length = 512,
                                .access = access,
                                .pd = kTestPd,
                                .qpn = qpn},
                               e.qp->bound_windows());
  }
  void rebind(memory::Access access, uint32_t qpn) {
    memory::unbind_window(e.memory.keys(), w.window);
    ASSERT_TRUE(bind(access, qpn));
  }
  void send_invalidating(Op operation, uint32_t psn, ConstBytes payload, uint32_t key) {
    roce::Headers headers = request(operation, psn, payload);
    headers.invalidate_rkey = key;
    EXPECT_EQ(e.receive(headers, payload), Verdict::kAccepted);
  }
  void expect_refused(uint32_t psn) {
    const auto packets = e.transmitted();
    ASSERT_EQ(packets.size(), 1u);
    EXPECT_EQ(packets[0].psn(), psn);
    EXPECT_EQ(packets[0].headers.syndrome, roce::nak_syndrome(NakCode::kRemoteAccess));
    EXPECT_EQ(e.qp->state(), IBV_QPS_ERR);
    EXPECT_THAT(e.log.events, Contains(IBV_EVENT_QP_ACCESS_ERR));
  }

  void reset() {
    e.qp->enter(IBV_QPS_RESET);
    e.bring_up(IBV_QPS_RTR);
    e.log.events.clear();
  }

  Windowed w{e.memory};
};

TEST_F(WindowsOfAResponder, AreReadWrittenAndCountedIn) {
  write(Op::kWriteOnly, 200, data(100), w.buffer.address(300), 100, w.window.key);
  EXPECT_TRUE(std::ranges::equal(w.buffer.bytes(300, 100), data(100)));
  expect_ack(200, 1);
  read(201, w.buffer.address(256), 512, w.window.key);
  EXPECT_EQ(e.transmitted().size(), 2u);
  fetch_add(203, w.buffer.address(256), 1, w.window.key);
  EXPECT_THAT(operations(e.transmitted()), ElementsAre(Op::kAtomicAcknowledge));
}

TEST_F(WindowsOfAResponder, EndWhereTheyEnd) {
  write(Op::kWriteOnly, 200, data(2), w.buffer.address(767), 2, w.window.key);
  expect_refused(200);
}

TEST_F(WindowsOfAResponder, AreClosedToOtherQps) {
  rebind(IBV_ACCESS_REMOTE_WRITE, 0x12);
  write(Op::kWriteOnly, 200, data(2), w.buffer.address(300), 2, w.window.key);
  expect_refused(200);
}

TEST_F(WindowsOfAResponder, AreInvalidatedByASend) {
  post();
  write(Op::kWriteOnly, 200, data(2), w.buffer.address(300), 2, w.window.key);
  expect_ack(200, 1);
  send_invalidating(Op::kSendOnlyInvalidate, 201, data(10), w.window.key);
  EXPECT_FALSE(w.is_bound());
  const ibv_wc wc = e.received();
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.wc_flags, static_cast<unsigned>(IBV_WC_WITH_INV));
  EXPECT_EQ(wc.invalidated_rkey, w.window.key);
  EXPECT_EQ(wc.byte_len, 10u);
  expect_ack(201, 2);
  write(Op::kWriteOnly, 202, data(2), w.buffer.address(300), 2, w.window.key);
  expect_refused(202);
}

TEST_F(WindowsOfAResponder, AreInvalidatedByTheLastPacketOfASend) {
  post();
  send(Op::kSendFirst, 200, data(256));
  EXPECT_TRUE(w.is_bound());
  send_invalidating(Op::kSendLastInvalidate, 201, data(10), w.window.key);
  EXPECT_FALSE(w.is_bound());
  EXPECT_EQ(e.received().wc_flags, static_cast<unsigned>(IBV_WC_WITH_INV));
}

TEST_F(WindowsOfAResponder, AreInvalidatedOnceByASendThatComesTwice) {
  post();
  send_invalidating(Op::kSendOnlyInvalidate, 200, data(10), w.window.key);
  e.transmitted();
  ASSERT_TRUE(bind(IBV_ACCESS_REMOTE_WRITE, 0x11));
  send_invalidating(Op::kSendOnlyInvalidate, 200, data(10), w.window.key);
  EXPECT_TRUE(w.is_bound());
  expect_ack(200, 1);
}

TEST_F(WindowsOfAResponder, StayAsTheyAreWhileTheReceiverIsNotReady) {
  send_invalidating(Op::kSendOnlyInvalidate, 200, data(10), w.window.key);
  EXPECT_TRUE(w.is_bound());
}

// IBTA volume 1, 9.9.6.3, class J.
TEST_F(WindowsOfAResponder, AreAllThatASendMayInvalidate) {
  memory::Region& type1 = e.memory.add_window(memory::RegionKind::kWindow1);
  const uint32_t others = 0x12;
  for (const uint32_t key : {w.window.key ^ 1, w.buffer.key(), target.key(), type1.key, 0u}) {
    SCOPED_TRACE(key);
    post();
    post();
    send_invalidating(Op::kSendOnlyInvalidate, 200, data(10), key);
    EXPECT_EQ(e.qp->state(), IBV_QPS_ERR);
    EXPECT_EQ(e.received().status, IBV_WC_REM_INV_REQ_ERR);
    EXPECT_EQ(e.received().status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_TRUE(w.is_bound());
    expect_ack(200, 1);
    reset();
  }
  rebind(IBV_ACCESS_REMOTE_WRITE, others);
  post();
  send_invalidating(Op::kSendOnlyInvalidate, 200, data(10), w.window.key);
  EXPECT_EQ(e.received().status, IBV_WC_REM_INV_REQ_ERR);
  expect_ack(200, 1);
  EXPECT_TRUE(w.is_bound());
}

TEST_F(WindowsOfAResponder, StayBoundAfterAMessageInPartsThatNamesAnotherKey) {
  post();
  send(Op::kSendFirst, 200, data(256));
  send_invalidating(Op::kSendLastInvalidate, 201, data(10), target.key());
  EXPECT_EQ(e.received().status, IBV_WC_REM_INV_REQ_ERR);
  expect_ack(201, 1);
  EXPECT_TRUE(w.is_bound());
}

TEST_F(WindowsOfAResponder, AnswersGivenBeforeSuchAMessageStillGoOut) {
  post();
  read(200, w.buffer.address(256), 300, w.window.key);
  send_invalidating(Op::kSendOnlyInvalidate, 202, data(10), target.key());
  EXPECT_EQ(e.qp->state(), IBV_QPS_ERR);
  EXPECT_THAT(operations(e.transmitted()),
              ElementsAre(Op::kReadResponseFirst, Op::kReadResponseLast, Op::kAcknowledge));
}

TEST_F(WindowsOfAResponder, ThatGoWhileTheyAreReadAreARemoteAccessError) {
  read(200, w.buffer.address(256), 512, w.window.key);
  memory::unbind_window(e.memory.keys(), w.window);
  expect_refused(200);
}

}  // namespace
}  // namespace verbena::transport
