// SPDX-License-Identifier: Apache-2.0
// A request that arrives before a receive is posted for it.
#include <chrono>

#include "adapter/queues/shared_receive_queue.h"
#include "adapter/transport/support/requester_test.h"
#include "adapter/transport/support/responder_test.h"
#include "adapter/transport/support/shared_test.h"

namespace verbena::transport {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// A quarter of the endpoints' ACK timeout.
const Duration kPatience = roce::ack_timeout(14) / 4;

// ---- the responder, over shared memory

class LateReceive : public ResponderTest {
 protected:
  void tune(QpAttributes&) override { e.routes.route.traits.lossless = true; }

  void pass(Duration time) {
    e.now += time;
    if (e.qp->deadline() <= e.now) e.qp->on_timer(e.now);
  }
  // Posts a receive as a program does. True if the program has to wake the shard.
  bool post_and_look() {
    post(256);
    return e.qp->publish_receives(0);
  }
};

TEST_F(LateReceive, HoldsTheRnrNakBackForAQuarterOfTheAckTimeout) {
  send(Operation::kSendOnly, 200, data(1));
  expect_ack(199, 0);
  pass(kPatience - microseconds(1));
  expect_silence();
  EXPECT_EQ(e.counter(kRnrNaksSent), 0u);
  pass(microseconds(1));
  expect_acknowledge(200, roce::rnr_syndrome(12), 0);
  EXPECT_EQ(e.counter(kRnrNaksSent), 1u);
  EXPECT_EQ(e.qp->deadline(), kNever);
}

TEST_F(LateReceive, AsksForTheRequestAsSoonAsTheReceiveIsPosted) {
  send(Operation::kSendOnly, 200, data(100));
  e.transmitted();
  EXPECT_TRUE(post_and_look()) << "nothing else would tell the shard";
  EXPECT_TRUE(e.qp->has_urgent());
  expect_acknowledge(200, roce::kReadySyndrome, 0);
  EXPECT_FALSE(e.qp->has_urgent());
  EXPECT_FALSE(post_and_look()) << "it is on its way";
  send(Operation::kSendOnly, 200, data(100));
  expect_received(1, 100);
  expect_ack(200, 1);
  pass(kPatience);
  expect_silence();
  EXPECT_EQ(e.qp->deadline(), kNever);
  EXPECT_EQ(e.counter(kRnrNaksSent), 0u);
}

TEST_F(LateReceive, DoesTheSameForAWriteWithImmediate) {
  write(Operation::kWriteOnlyImmediate, 200, data(10), target.address(), 10, target.key());
  e.transmitted();
  post_and_look();
  expect_acknowledge(200, roce::kReadySyndrome, 0);
}

// The sender may not have requested an acknowledgement of them.
TEST_F(LateReceive, AcknowledgesTheRequestsBeforeIt) {
  post(256);
  send(Operation::kSendOnly, 200, data(1), false);
  send(Operation::kSendOnly, 201, data(1), false);
  expect_received(1, 1);
  expect_ack(200, 1);
}

TEST_F(LateReceive, IgnoresWhatFollowsTheRequest) {
  send(Operation::kSendOnly, 200, data(1));
  e.transmitted();
  send(Operation::kSendOnly, 201, data(1));
  expect_silence();
}

TEST_F(LateReceive, DoesNotBeginAnewWhenTheRequestIsRepeated) {
  send(Operation::kSendOnly, 200, data(1));
  e.transmitted();
  pass(kPatience - milliseconds(1));
  send(Operation::kSendOnly, 200, data(1));
  e.transmitted();
  pass(milliseconds(1));
  expect_acknowledge(200, roce::rnr_syndrome(12), 0);
}

TEST_F(LateReceive, WaitsAgainForARequestThatIsRepeatedAfterTheRnrNak) {
  send(Operation::kSendOnly, 200, data(1));
  e.transmitted();
  pass(kPatience);
  e.transmitted();
  send(Operation::kSendOnly, 200, data(1));
  expect_ack(199, 0);
  pass(kPatience);
  expect_acknowledge(200, roce::rnr_syndrome(12), 0);
}

TEST_F(LateReceive, ForgetsTheWaitInTheErrorState) {
  send(Operation::kSendOnly, 200, data(1));
  e.transmitted();
  e.qp->enter(IBV_QPS_ERR);
  EXPECT_EQ(e.qp->deadline(), kNever);
  pass(kPatience);
  expect_silence();
}

class ImpatientPeer : public LateReceive {
 protected:
  void tune(QpAttributes& attributes) override {
    LateReceive::tune(attributes);
    attributes.timeout = 10;  // 4.2 ms
  }
};

TEST_F(ImpatientPeer, GetsTheRnrNakBeforeItsAckTimeout) {
  send(Operation::kSendOnly, 200, data(1));
  e.transmitted();
  EXPECT_EQ(e.qp->deadline() - e.now, roce::ack_timeout(10) / 4);
}

// ---- the responder, over a wire

class LateReceiveOnWire : public LateReceive {
 protected:
  void tune(QpAttributes&) override {}
};

TEST_F(LateReceiveOnWire, HoldsTheRnrNakBackForAQuarterOfTheAckTimeout) {
  send(Operation::kSendOnly, 200, data(1));
  expect_ack(199, 0);
  pass(kPatience - microseconds(1));
  expect_silence();
  pass(microseconds(1));
  expect_acknowledge(200, roce::rnr_syndrome(12), 0);
  EXPECT_EQ(e.counter(kRnrNaksSent), 1u);
  EXPECT_EQ(e.qp->deadline(), kNever);
}

TEST_F(LateReceiveOnWire, ExecutesTheRequestAsSoonAsTheReceiveIsPosted) {
  send(Operation::kSendOnly, 200, data(100));
  e.transmitted();
  EXPECT_TRUE(post_and_look()) << "nothing else would tell the shard";
  EXPECT_TRUE(e.qp->has_urgent());
  expect_ack(200, 1);
  expect_received(1, 100);
  EXPECT_TRUE(std::equal(source.begin(), source.begin() + 100, inbox.data()));
  EXPECT_FALSE(post_and_look()) << "nothing waits";
  pass(kPatience);
  expect_silence();
}

TEST_F(LateReceiveOnWire, DoesTheSameForTheLastPacketOfAWriteWithImmediate) {
  write(Operation::kWriteFirst, 200, data(256), target.address(), 300, target.key());
  send(Operation::kWriteLastImmediate, 201, data(44, 256));
  expect_ack(200, 0);
  post_and_look();
  expect_ack(201, 1);
  EXPECT_TRUE(std::equal(source.begin(), source.begin() + 300, target.data()));
}

TEST_F(LateReceiveOnWire, ExecutesWhatFollowsAsFarAsThereAreReceives) {
  for (const uint32_t psn : {200u, 201u, 202u}) send(Operation::kSendOnly, psn, data(10));
  e.transmitted();
  post();
  post_and_look();
  expect_ack(201, 2);
  pass(kPatience - milliseconds(1));
  expect_silence();
  EXPECT_TRUE(post_and_look()) << "only the third request waits";
  expect_ack(202, 3);
}

TEST_F(LateReceiveOnWire, SendsNoNakForWhatFollows) {
  send(Operation::kSendOnly, 200, data(1));
  send(Operation::kSendOnly, 201, data(1));
  expect_ack(199, 0);
}

TEST_F(LateReceiveOnWire, AsksForAPacketThatIsMissingBehindIt) {
  send(Operation::kSendOnly, 200, data(1));
  send(Operation::kSendOnly, 202, data(1));
  e.transmitted();
  post_and_look();
  e.transmit();
  const auto packets = answers();
  ASSERT_FALSE(packets.empty());
  EXPECT_EQ(packets.back().psn(), 201u);
  EXPECT_EQ(packets.back().headers.syndrome, roce::nak_syndrome(NakCode::kSequenceError));
}

TEST_F(LateReceiveOnWire, ExecutesOnceWhatIsSentAgainMeanwhile) {
  send(Operation::kSendOnly, 200, data(1));
  pass(milliseconds(5));
  send(Operation::kSendOnly, 200, data(1));
  e.transmitted();
  post();
  post_and_look();
  expect_ack(200, 1);
  expect_received(1, 1);
  expect_none_received();
}

// The QP has no timeout, so nothing else would bring the acknowledgement.
TEST_F(LateReceiveOnWire, AcknowledgesWhatOnlyALaterCopyAsksAbout) {
  for (const uint32_t psn : {200u, 201u}) send(Operation::kSendOnly, psn, data(1), false);
  send(Operation::kSendOnly, 201, data(1), true);
  e.transmitted();
  post();
  post();
  post_and_look();
  expect_ack(201, 2);
}

TEST_F(LateReceiveOnWire, AcknowledgesTheFirstIfOnlyALaterCopyAsks) {
  send(Operation::kSendOnly, 200, data(1), false);
  send(Operation::kSendOnly, 200, data(1), true);
  e.transmitted();
  post_and_look();
  expect_ack(200, 1);
}

TEST_F(LateReceiveOnWire, CountsTheTimeFromTheFirstTry) {
  send(Operation::kSendOnly, 200, data(1));
  pass(milliseconds(5));
  send(Operation::kSendOnly, 200, data(1));
  e.transmitted();
  pass(kPatience - milliseconds(5));
  expect_acknowledge(200, roce::rnr_syndrome(12), 0);
}

TEST_F(LateReceiveOnWire, ExecutesTheRequestThatIsRepeatedAfterTheRnrNak) {
  send(Operation::kSendOnly, 200, data(1));
  e.transmitted();
  pass(kPatience);
  e.transmitted();
  EXPECT_FALSE(post_and_look()) << "its sender waits for the RNR timer";
  expect_silence();
  send(Operation::kSendOnly, 200, data(1));
  expect_ack(200, 1);
  expect_received(1, 1);
}

TEST_F(LateReceiveOnWire, ForgetsTheRequestInTheErrorState) {
  send(Operation::kSendOnly, 200, data(1));
  e.transmitted();
  e.qp->enter(IBV_QPS_ERR);
  EXPECT_EQ(e.qp->deadline(), kNever);
  post_and_look();
  e.transmit();
  expect_received(1, 0, IBV_WC_WR_FLUSH_ERR);
}

// Linux rxe does the same; its captures are replayed with this setting.
TEST(LateReceiveWithoutRepairs, GetsTheRnrNakAtOnce) {
  Endpoint<RcQueuePair> e{{.repairs = false}};
  e.bring_up();
  e.receive(rc_headers(roce::Operation::kSendOnly, 200));
  const auto packets = e.transmitted();
  ASSERT_EQ(packets.size(), 1u);
  EXPECT_EQ(roce::aeth_kind(packets[0].headers.syndrome), roce::AethKind::kRnrNak);
}

class PatientPeer : public LateReceive {
 protected:
  void tune(QpAttributes& attributes) override {
    LateReceive::tune(attributes);
    attributes.timeout = 20;  // 4.3 s
  }
};

TEST_F(PatientPeer, GetsTheRnrNakAfterATenthOfASecond) {
  send(Operation::kSendOnly, 200, data(1));
  e.transmitted();
  EXPECT_EQ(e.qp->deadline() - e.now, milliseconds(100));
}

// ---- from a shared queue, whose posts no QP is told about

class LateSharedReceive : public SharedTest {
 protected:
  void bring_up(Endpoint<RcQueuePair>& e) {
    e.routes.route.traits.lossless = true;
    e.bring_up();
  }
  void send(Endpoint<RcQueuePair>& e, uint32_t psn) {
    EXPECT_EQ(e.receive(request(roce::Service::kRc, Op::kSendOnly, psn, data(1)), data(1)),
              Verdict::kAccepted);
  }
  EndpointOptions with_queue() { return {.recv_requests = 0, .keys = &memory.keys(), .srq = queue.get()}; }

  std::unique_ptr<queues::SharedReceiveQueue> queue = make_queue();
};

TEST_F(LateSharedReceive, IsFoundWithinAFewTimerTicks) {
  Endpoint<RcQueuePair> e(with_queue());
  bring_up(e);
  send(e, 200);
  e.transmitted();
  e.wait_for_timer();
  EXPECT_THAT(e.transmitted(), testing::IsEmpty());
  post(*queue, 1);
  const TimePoint posted = e.now;
  e.wait_for_timer();
  EXPECT_LE(e.now - posted, microseconds(50));
  expect_answer(e, roce::kReadySyndrome, 200);
}

TEST_F(LateSharedReceive, LooksLessOftenTheLongerItTakes) {
  Endpoint<RcQueuePair> e(with_queue());
  bring_up(e);
  send(e, 200);
  e.transmitted();
  int looks = 0;
  for (; e.counter(kRnrNaksSent) == 0 && looks < 100; ++looks) {
    e.wait_for_timer();
    e.transmit();
  }
  EXPECT_LT(looks, 30);
}

TEST_F(LateSharedReceive, WaitsOnWhenAnotherQpTakesIt) {
  Endpoint<RcQueuePair> e(with_queue());
  bring_up(e);
  const TimePoint began = e.now;
  send(e, 200);
  e.transmitted();
  post(*queue, 1);
  e.wait_for_timer();
  expect_answer(e, roce::kReadySyndrome, 200);
  Endpoint<RcQueuePair> other(with_queue());
  bring_up(other);
  send(other, 200);
  send(e, 200);
  expect_answer(e, roce::ack_syndrome(), 199);
  while (e.counter(kRnrNaksSent) == 0) {
    e.wait_for_timer();
    e.transmit();
  }
  EXPECT_EQ(e.now - began, kPatience);
}

TEST_F(LateSharedReceive, IsFoundOnAWire) {
  Endpoint<RcQueuePair> e(with_queue());
  e.bring_up();
  send(e, 200);
  e.transmitted();
  e.wait_for_timer();
  post(*queue, 1);
  const TimePoint posted = e.now;
  e.wait_for_timer();
  EXPECT_LE(e.now - posted, microseconds(50));
  expect_answer(e, roce::ack_syndrome(), 200);
}

// ---- the requester

class PeerWithLateReceive : public RequesterTest {
 protected:
  void tune(QpAttributes& attributes) override {
    e.routes.route.traits.lossless = true;
    attributes.rnr_retry = 0;
  }
};

TEST_F(PeerWithLateReceive, GetsTheRequestAgainAsOftenAsItAsksAndNoRetryIsUsed) {
  post(IBV_WR_SEND, 10);
  EXPECT_EQ(psns(e.transmitted()), std::vector<uint32_t>{100});
  for (int i = 0; i < 10; ++i) {
    acknowledge(100, roce::kReadySyndrome);
    EXPECT_EQ(psns(e.transmitted()), std::vector<uint32_t>{100});
  }
  acknowledge(100);
  expect_sent(1);
  EXPECT_EQ(e.counter(kRnrNaksReceived), 0u);
}

TEST_F(PeerWithLateReceive, GetsWhatFollowsAgainToo) {
  for (int i = 0; i < 3; ++i) post(IBV_WR_SEND, 10);
  e.transmitted();
  acknowledge(101, roce::kReadySyndrome);
  expect_sent(1);
  EXPECT_EQ(psns(e.transmitted()), (std::vector<uint32_t>{101, 102}));
}

TEST_F(PeerWithLateReceive, MayStillNotBeReady) {
  post(IBV_WR_SEND, 10);
  e.transmitted();
  rnr(100, 1);
  expect_sent(1, IBV_WC_RNR_RETRY_EXC_ERR);
}

}  // namespace
}  // namespace verbena::transport
