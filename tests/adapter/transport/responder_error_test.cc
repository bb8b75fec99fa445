// SPDX-License-Identifier: Apache-2.0
// The responder's answers to requests that are out of order, not allowed or malformed.
#include "adapter/transport/support/responder_test.h"

namespace verbena::transport {
namespace {

using testing::ElementsAre;
using Op = roce::Operation;

class ResponderErrors : public ResponderTest {
 protected:
  // Expects that the request was refused: the NAK, the error state, the flushed receives.
  void expect_refusal(uint32_t psn, NakCode code, uint32_t msn = 0) {
    EXPECT_EQ(e.qp->state(), IBV_QPS_ERR);
    EXPECT_TRUE(e.qp->has_urgent());
    expect_nak(psn, code, msn);
    expect_silence();
  }
  void reset() {
    e.qp->enter(IBV_QPS_RESET);
    e.bring_up(IBV_QPS_RTR);
  }
};

// ---- sequence

TEST_F(ResponderErrors, SaysOnceForEachGapWhatIsMissing) {
  for (int i = 0; i < 5; ++i) post();
  send(Op::kSendOnly, 200, data(1));
  expect_ack(200, 1);
  send(Op::kSendOnly, 202, data(1));
  expect_nak(201, NakCode::kSequenceError, 1);
  send(Op::kSendOnly, 203, data(1));
  send(Op::kSendOnly, 204, data(1));
  expect_silence();
  send(Op::kSendOnly, 201, data(1));
  expect_ack(204, 5);                 // the early packets were kept
  send(Op::kSendOnly, 206, data(1));  // another gap
  expect_nak(205, NakCode::kSequenceError, 5);
  EXPECT_EQ(e.counter(kSequenceNaksSent), 2u);
  EXPECT_EQ(e.counter(kOutOfSequence), 4u);
}

TEST_F(ResponderErrors, DoesNotComplainOfAGapThatClosedMeanwhile) {
  for (int i = 0; i < 2; ++i) post();
  send(Op::kSendOnly, 201, data(1));
  send(Op::kSendOnly, 200, data(1));
  expect_ack(201, 2);
}

TEST_F(ResponderErrors, RepeatsAckForDuplicateSend) {
  for (int i = 0; i < 3; ++i) post();
  send(Op::kSendOnly, 200, data(10));
  send(Op::kSendOnly, 201, data(10));
  expect_ack(201, 2);
  send(Op::kSendOnly, 200, data(10, 50));
  expect_ack(201, 2);
  expect_received(1, 10);
  expect_received(2, 10);
  expect_none_received();
}

TEST_F(ResponderErrors, WritesADuplicateNotAgain) {
  write(Op::kWriteOnly, 200, data(10), target.address(), 10, target.key());
  expect_ack(200, 1);
  target.fill(5);
  const std::vector<std::byte> before(target.data(), target.data() + 10);
  write(Op::kWriteOnly, 200, data(10), target.address(), 10, target.key());
  expect_ack(200, 1);
  EXPECT_TRUE(std::ranges::equal(target.bytes(0, 10), before));
}

TEST_F(ResponderErrors, TakesPsnsHalfTheSpaceAwayForPastOrFuture) {
  post();
  send(Op::kSendOnly, 200 + (1 << 23) - 1, data(1));
  expect_nak(200, NakCode::kSequenceError, 0);
  send(Op::kSendOnly, 200 - (1 << 22), data(1));
  expect_ack(199, 0);
  expect_none_received();
}

// ---- receiver not ready

TEST_F(ResponderErrors, AsksToWaitWithoutAReceive) {
  send(Op::kSendOnly, 200, data(1));
  expect_rnr_nak(200, 0);
  send(Op::kSendOnly, 201, data(1));  // sent before the NAK arrived
  expect_silence();
  post();
  send(Op::kSendOnly, 200, data(1));
  expect_received(1, 1);
  expect_rnr_nak(201, 1);  // 201 was kept, and has no receive either
  EXPECT_EQ(e.qp->state(), IBV_QPS_RTR);
}

TEST_F(ResponderErrors, AsksToWaitEachTimeItIsAskedAgain) {
  for (int i = 0; i < 3; ++i) {
    send(Op::kSendOnly, 200, data(1));
    expect_rnr_nak(200, 0);
  }
  EXPECT_EQ(e.counter(kRnrNaksSent), 3u);
}

TEST_F(ResponderErrors, NeedsAReceiveForAWriteWithImmediateAndNoOtherWrite) {
  write(Op::kWriteFirst, 200, data(256), target.address(), 300, target.key());
  e.transmitted();
  write(Op::kWriteLastImmediate, 201, data(44, 256));
  expect_rnr_nak(201, 0);
  post();
  write(Op::kWriteLastImmediate, 201, data(44, 256));
  expect_received(1, 300);
  EXPECT_TRUE(std::ranges::equal(target.bytes(0, 300), data(300)));
}

// ---- malformed requests

TEST_F(ResponderErrors, RefusesAMiddleWithoutAFirst) {
  post();
  send(Op::kSendMiddle, 200, data(256));
  expect_refusal(200, NakCode::kInvalidRequest);
  expect_received(1, 0, IBV_WC_WR_FLUSH_ERR);
  EXPECT_THAT(e.log.events, testing::Contains(IBV_EVENT_QP_REQ_ERR));
}

TEST_F(ResponderErrors, RefusesAFirstWithinAMessage) {
  post();
  send(Op::kSendFirst, 200, data(256), false);
  send(Op::kSendFirst, 201, data(256));
  expect_refusal(201, NakCode::kInvalidRequest);
}

TEST_F(ResponderErrors, RefusesAnotherKindOfMessageWithinOne) {
  post();
  send(Op::kSendFirst, 200, data(256), false);
  write(Op::kWriteLast, 201, data(10));
  expect_refusal(201, NakCode::kInvalidRequest);

  reset();
  post();
  send(Op::kSendFirst, 200, data(256), false);
  read(201, 0, 10);
  expect_refusal(201, NakCode::kInvalidRequest);

  reset();
  write(Op::kWriteFirst, 200, data(256), target.address(), 300, target.key());
  fetch_add(201, 1);
  expect_refusal(201, NakCode::kInvalidRequest);
}

// Linux rxe does the same (do_class_ac_error()).
TEST_F(ResponderErrors, FailsTheReceiveOfASendThatAnotherRequestInterrupts) {
  post();
  send(Op::kSendFirst, 200, data(256), false);
  read(201, 0, 10);
  expect_refusal(201, NakCode::kInvalidRequest);
  expect_received(1, 0, IBV_WC_REM_INV_REQ_ERR);

  reset();
  post();
  send(Op::kSendFirst, 200, data(256), false);
  send(Op::kSendOnly, 201, data(1));
  expect_refusal(201, NakCode::kInvalidRequest);
  expect_received(2, 0, IBV_WC_REM_INV_REQ_ERR);
}

// The sender has a different path MTU. Linux rxe detects it in check_length(), after check_resource().
TEST_F(ResponderErrors, FailsTheReceiveOfASendWithAnotherPathMtu) {
  for (const uint32_t bytes : {128u, 1024u}) {
    post();
    post();
    send(Op::kSendFirst, 200, data(bytes));
    expect_refusal(200, NakCode::kInvalidRequest);
    EXPECT_EQ(e.received().status, IBV_WC_REM_INV_REQ_ERR);
    EXPECT_EQ(e.received().status, IBV_WC_WR_FLUSH_ERR);
    reset();
  }
}

TEST_F(ResponderErrors, FailsTheReceiveOfAWriteWithImmediateAndAnotherPathMtu) {
  post();
  write(Op::kWriteOnlyImmediate, 200, data(300), target.address(), 300, target.key());
  expect_refusal(200, NakCode::kInvalidRequest);
  expect_received(1, 0, IBV_WC_REM_INV_REQ_ERR);
}

TEST_F(ResponderErrors, FailsNoReceiveForAWriteWithAnotherPathMtu) {
  post();
  write(Op::kWriteFirst, 200, data(300), target.address(), 600, target.key());
  expect_refusal(200, NakCode::kInvalidRequest);
  expect_received(1, 0, IBV_WC_WR_FLUSH_ERR);
}

TEST_F(ResponderErrors, AsksToWaitForAReceiveBeforeItLooksAtThePathMtu) {
  send(Op::kSendFirst, 200, data(1024));
  expect_rnr_nak(200, 0);
  post();
  send(Op::kSendFirst, 200, data(1024));
  expect_refusal(200, NakCode::kInvalidRequest);
  expect_received(1, 0, IBV_WC_REM_INV_REQ_ERR);
}

TEST_F(ResponderErrors, RefusesPacketsThatAreNotFullBeforeTheLast) {
  post();
  send(Op::kSendFirst, 200, data(252));
  expect_refusal(200, NakCode::kInvalidRequest);
}

TEST_F(ResponderErrors, RefusesAPacketLongerThanTheMtu) {
  post();
  send(Op::kSendOnly, 200, data(260));
  expect_refusal(200, NakCode::kInvalidRequest);
}

TEST_F(ResponderErrors, RefusesAnEmptyLast) {
  post();
  send(Op::kSendFirst, 200, data(256), false);
  send(Op::kSendLast, 201);
  expect_refusal(201, NakCode::kInvalidRequest);
}

TEST_F(ResponderErrors, RefusesAWriteOfAnotherLengthThanItSaid) {
  write(Op::kWriteOnly, 200, data(10), target.address(), 12, target.key());
  expect_refusal(200, NakCode::kInvalidRequest);

  reset();
  write(Op::kWriteFirst, 200, data(256), target.address(), 256, target.key());
  expect_refusal(200, NakCode::kInvalidRequest);

  reset();
  write(Op::kWriteFirst, 200, data(256), target.address(), 600, target.key());
  write(Op::kWriteLast, 201, data(256));
  expect_refusal(201, NakCode::kInvalidRequest);
}

TEST_F(ResponderErrors, RefusesAMisalignedAtomic) {
  fetch_add(200, target.address(4), 1, target.key());
  expect_refusal(200, NakCode::kInvalidRequest);
}

TEST_F(ResponderErrors, RefusesAnAtomicOnMemoryThatIsMisalignedHere) {
  memory::Region shifted;
  shifted.base = target.data() +
                 4;  // as a region registered at an I/O virtual address of the application's choice may be
  shifted.iova = target.address();
  shifted.length = 64;
  shifted.access = target.region().access;
  shifted.pd = target.region().pd;
  memory::KeyTable& keys = e.memory.keys();
  ASSERT_TRUE(keys.insert(&shifted));
  fetch_add(200, shifted.iova, 1, shifted.key);
  expect_refusal(200, NakCode::kInvalidRequest);
  keys.remove(shifted.key);
}

// ---- access

TEST_F(ResponderErrors, RefusesAnUnknownKey) {
  write(Op::kWriteOnly, 200, data(10), target.address(), 10, target.key() ^ 1);
  expect_refusal(200, NakCode::kRemoteAccess);
  EXPECT_THAT(e.log.events, testing::Contains(IBV_EVENT_QP_ACCESS_ERR));
  reset();
  read(200, target.address(), 10, target.key() ^ 0x100);
  expect_refusal(200, NakCode::kRemoteAccess);
  reset();
  fetch_add(200, target.address(), 1, 0);
  expect_refusal(200, NakCode::kRemoteAccess);
}

TEST_F(ResponderErrors, TellsTheReceiveOfAWriteWithImmediateThatItWasRefused) {
  post();
  post();
  write(Op::kWriteOnlyImmediate, 200, data(10), target.address(), 10, target.key() ^ 1);
  expect_refusal(200, NakCode::kRemoteAccess);
  expect_received(1, 0, IBV_WC_LOC_ACCESS_ERR);
  expect_received(2, 0, IBV_WC_WR_FLUSH_ERR);
}

TEST_F(ResponderErrors, RefusesAWriteWithImmediateThatFindsNoReceiveEither) {
  write(Op::kWriteOnlyImmediate, 200, data(10), target.address(), 10, target.key() ^ 1);
  expect_refusal(200, NakCode::kRemoteAccess);
  EXPECT_THAT(e.log.events, testing::Contains(IBV_EVENT_QP_ACCESS_ERR));
}

TEST_F(ResponderErrors, RefusesWhatLeavesTheRegion) {
  write(Op::kWriteOnly, 200, data(10), target.address(target.size() - 9), 10, target.key());
  expect_refusal(200, NakCode::kRemoteAccess);
  reset();
  write(Op::kWriteFirst, 200, data(256), target.address(target.size() - 256), 300, target.key());
  expect_refusal(200, NakCode::kRemoteAccess);
  reset();
  read(200, target.address() - 1, 10, target.key());
  expect_refusal(200, NakCode::kRemoteAccess);
  reset();
  read(200, UINT64_MAX - 3, 8, target.key());
  expect_refusal(200, NakCode::kRemoteAccess);
}

TEST_F(ResponderErrors, RefusesARegionOfAnotherProtectionDomain) {
  Buffer& foreign = e.memory.add(100, kAllAccess, kTestPd + 1);
  write(Op::kWriteOnly, 200, data(10), foreign.address(), 10, foreign.key());
  expect_refusal(200, NakCode::kRemoteAccess);
}

TEST_F(ResponderErrors, RefusesWhatTheRegionDoesNotAllow) {
  Buffer& readable = e.memory.add(100, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
  Buffer& writable = e.memory.add(100, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  write(Op::kWriteOnly, 200, data(10), readable.address(), 10, readable.key());
  expect_refusal(200, NakCode::kRemoteAccess);
  reset();
  read(200, writable.address(), 10, writable.key());
  expect_refusal(200, NakCode::kRemoteAccess);
  reset();
  fetch_add(200, writable.address(), 1, writable.key());
  expect_refusal(200, NakCode::kRemoteAccess);
}

TEST_F(ResponderErrors, RefusesWhatTheQpDoesNotAllow) {
  e.attributes().access = 0;
  write(Op::kWriteOnly, 200, data(10), target.address(), 10, target.key());
  expect_refusal(200, NakCode::kInvalidRequest);
  reset();
  read(200, 0, 10);
  expect_refusal(200, NakCode::kInvalidRequest);
  reset();
  fetch_add(200, 1);
  expect_refusal(200, NakCode::kInvalidRequest);
}

TEST_F(ResponderErrors, RefusesAWriteWhoseRegionGoesAwayInItsMidst) {
  Buffer& fleeting = e.memory.add(600);
  write(Op::kWriteFirst, 200, data(256), fleeting.address(), 600, fleeting.key());
  e.transmitted();
  e.memory.deregister(fleeting);
  write(Op::kWriteMiddle, 201, data(256));
  expect_refusal(201, NakCode::kRemoteAccess);
}

// ---- receives that fail

TEST_F(ResponderErrors, FailsAReceiveThatIsTooShort) {
  post(99);
  post();
  send(Op::kSendOnly, 200, data(100));
  expect_received(1, 0, IBV_WC_LOC_LEN_ERR);
  expect_received(2, 0, IBV_WC_WR_FLUSH_ERR);
  expect_refusal(200, NakCode::kInvalidRequest);
  EXPECT_TRUE(std::ranges::equal(inbox.bytes(0, 99), data(99)) ||
              std::ranges::count(inbox.bytes(0, 99), std::byte{0}) == 99);
}

TEST_F(ResponderErrors, FailsAReceiveThatIsTooShortForTheSecondPacket) {
  post(300);
  send(Op::kSendFirst, 200, data(256), false);
  send(Op::kSendMiddle, 201, data(256));
  expect_received(1, 0, IBV_WC_LOC_LEN_ERR);
  expect_refusal(201, NakCode::kInvalidRequest);
  EXPECT_EQ(inbox.bytes()[300], std::byte{0}) << "nothing beyond the receive is touched";
}

TEST_F(ResponderErrors, FailsAReceiveIntoMemoryThatMayNotBeWritten) {
  Buffer& constant = e.memory.add(100, 0);
  ibv_sge sge = constant.sge();
  post_list({&sge, 1});
  send(Op::kSendOnly, 200, data(10));
  expect_received(1, 0, IBV_WC_LOC_PROT_ERR);
  expect_refusal(200, NakCode::kRemoteOperational);
}

TEST_F(ResponderErrors, FailsAReceiveWithAnUnknownKey) {
  ibv_sge sge = {inbox.address(), 100, 0xdead};
  post_list({&sge, 1});
  send(Op::kSendOnly, 200, data(10));
  expect_received(1, 0, IBV_WC_LOC_PROT_ERR);
  expect_refusal(200, NakCode::kRemoteOperational);
}

TEST_F(ResponderErrors, SendsTheRefusalWhenTheSinkHasRoomAgain) {
  e.sink.room = 0;
  send(Op::kSendMiddle, 200, data(256));
  EXPECT_EQ(e.transmit(), TransmitResult::kBusy);
  EXPECT_TRUE(e.qp->has_urgent());
  e.sink.room = -1;
  expect_nak(200, NakCode::kInvalidRequest, 0);
}

}  // namespace
}  // namespace verbena::transport
