// SPDX-License-Identifier: Apache-2.0
// Requests that fail: their status, their order, and the completions of the other requests.
#include "adapter/transport/support/requester_test.h"

namespace verbena::transport {
namespace {

using testing::ElementsAre;
using Op = roce::Operation;

class RequesterErrors : public RequesterTest {};

struct NakCase {
  roce::NakCode code;
  ibv_wc_status status;
};
class RequesterNak : public RequesterTest, public testing::WithParamInterface<NakCase> {};

TEST_P(RequesterNak, FailsTheRequestAndFlushesTheRest) {
  for (int i = 0; i < 4; ++i) post(IBV_WR_SEND, 10);
  e.transmitted();
  nak(101, GetParam().code);
  expect_sent(1);
  expect_sent(2, GetParam().status);
  expect_sent(3, IBV_WC_WR_FLUSH_ERR);
  expect_sent(4, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(e.qp->state(), IBV_QPS_ERR);
  EXPECT_FALSE(e.qp->has_outstanding());
}
INSTANTIATE_TEST_SUITE_P(Codes, RequesterNak,
                         testing::Values(NakCase{roce::NakCode::kInvalidRequest, IBV_WC_REM_INV_REQ_ERR},
                                         NakCase{roce::NakCode::kRemoteAccess, IBV_WC_REM_ACCESS_ERR},
                                         NakCase{roce::NakCode::kRemoteOperational, IBV_WC_REM_OP_ERR},
                                         NakCase{roce::NakCode::kInvalidRdRequest, IBV_WC_REM_INV_REQ_ERR}));

TEST_F(RequesterErrors, FailsAReadByItsNak) {
  post(IBV_WR_RDMA_READ, 600);
  e.transmitted();
  nak(100, NakCode::kRemoteAccess);
  expect_sent(1, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(RequesterErrors, FailsARequestWithAnUnknownKey) {
  post_with_key(IBV_WR_SEND, 10, 0xdead);
  EXPECT_TRUE(e.transmitted().empty());
  expect_sent(1, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(e.qp->state(), IBV_QPS_ERR);
}

TEST_F(RequesterErrors, FailsARequestWithMemoryOfAnotherProtectionDomain) {
  Buffer& foreign = e.memory.add(100, kAllAccess, kTestPd + 1);
  ibv_send_wr wr = request(IBV_WR_SEND, 10);
  *wr.sg_list = foreign.sge(0, 10);
  ASSERT_TRUE(post_send(*e.qp, wr));
  e.transmit();
  expect_sent(1, IBV_WC_LOC_PROT_ERR);
}

TEST_F(RequesterErrors, FailsARequestThatLeavesItsRegion) {
  ibv_send_wr wr = request(IBV_WR_SEND, 11);
  wr.sg_list->addr = local.address(local.size() - 10);
  ASSERT_TRUE(post_send(*e.qp, wr));
  e.transmit();
  expect_sent(1, IBV_WC_LOC_PROT_ERR);
}

// Linux rxe and mlx5 do the same: by then the peer has executed the atomic.
TEST_F(RequesterErrors, LooksAtTheKeyOfAReadOrAtomicWhenTheAnswerComes) {
  for (const ibv_wr_opcode opcode :
       {IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP}) {
    SCOPED_TRACE(opcode);
    e.qp->enter(IBV_QPS_RESET);
    e.bring_up();
    post_with_key(opcode, 8, 0xdead);
    const auto packets = e.transmitted();
    ASSERT_EQ(packets.size(), 1u);
    expect_none_sent();
    if (opcode == IBV_WR_RDMA_READ) {
      respond_read(packets[0], local.bytes(0, 8));
    } else {
      respond_atomic(100, 5);
    }
    EXPECT_EQ(e.sent().status, IBV_WC_LOC_PROT_ERR);
    EXPECT_EQ(e.qp->state(), IBV_QPS_ERR);
  }
}

TEST_F(RequesterErrors, LooksAtTheKeyAgainWhenTheAnswerComes) {
  Buffer& fleeting = e.memory.add(64);
  ibv_send_wr wr = request(IBV_WR_ATOMIC_FETCH_AND_ADD, 8);
  *wr.sg_list = fleeting.sge(0, 8);
  ASSERT_TRUE(post_send(*e.qp, wr));
  ASSERT_EQ(e.transmitted().size(), 1u);
  e.memory.deregister(fleeting);
  respond_atomic(100, 5);
  EXPECT_EQ(e.sent().status, IBV_WC_LOC_PROT_ERR);
}

TEST_F(RequesterErrors, DoesNotReadIntoMemoryThatMayNotBeWritten) {
  Buffer& constant = e.memory.add(100, IBV_ACCESS_REMOTE_READ);
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD}) {
    e.qp->enter(IBV_QPS_RESET);
    e.bring_up();
    ibv_send_wr wr = request(opcode, 8);
    *wr.sg_list = constant.sge(0, 8);
    ASSERT_TRUE(post_send(*e.qp, wr));
    const auto packets = e.transmitted();
    ASSERT_EQ(packets.size(), 1u);
    if (opcode == IBV_WR_RDMA_READ) {
      respond_read(packets[0], local.bytes(0, 8));
    } else {
      respond_atomic(100, 5);
    }
    expect_sent(wr.wr_id, IBV_WC_LOC_PROT_ERR);
  }
}

TEST_F(RequesterErrors, FailsABadRequestAfterThoseBeforeItAreDone) {
  post(IBV_WR_SEND, 10);
  post(IBV_WR_SEND, 10);
  post_with_key(IBV_WR_SEND, 10, 0xdead);
  post(IBV_WR_SEND, 10);
  auto packets = e.transmitted();
  // The second relied on the third to request an acknowledgement. The third cannot be sent, so the second
  // goes out again.
  ASSERT_THAT(psns(packets), ElementsAre(100, 101, 101));
  EXPECT_TRUE(packets[2].asks());
  expect_none_sent();
  EXPECT_EQ(e.qp->state(), IBV_QPS_RTS);
  acknowledge(100);
  expect_sent(1);
  expect_none_sent();
  acknowledge(101);
  expect_sent(2);
  expect_sent(3, IBV_WC_LOC_PROT_ERR);
  expect_sent(4, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(e.qp->state(), IBV_QPS_ERR);
}

TEST_F(RequesterErrors, StillGoesBackForThoseBeforeABadRequest) {
  post(IBV_WR_SEND, 10);
  post(IBV_WR_SEND, 10);
  post_with_key(IBV_WR_SEND, 10, 0xdead);
  e.transmitted();
  nak(100, NakCode::kSequenceError);
  auto packets = e.transmitted();
  ASSERT_GE(packets.size(), 2u);
  EXPECT_EQ(packets[0].psn(), 100u);
  EXPECT_EQ(packets.back().psn(), 101u);
  EXPECT_TRUE(packets.back().asks());
  e.wait_for_timer();
  packets = e.transmitted();
  ASSERT_GE(packets.size(), 2u);
  EXPECT_TRUE(packets.back().asks());
  acknowledge(101);
  expect_sent(1);
  expect_sent(2);
  expect_sent(3, IBV_WC_LOC_PROT_ERR);
}

// Requests whose memory is deregistered while they are in flight.
class RequesterWithFleetingMemory : public RequesterErrors {
 protected:
  void post_fleeting(ibv_wr_opcode opcode = IBV_WR_RDMA_WRITE) {
    ibv_send_wr wr = request(opcode, 8);
    *wr.sg_list = fleeting.sge(0, 8);
    ASSERT_TRUE(post_send(*e.qp, wr));
  }
  // Sends at most `budget` packets, as if more followed the last one.
  std::vector<SentPacket> transmit_some(uint32_t budget) {
    e.transmit(budget);
    std::vector<SentPacket> all(e.sink.packets.begin(), e.sink.packets.end());
    e.sink.packets.clear();
    return all;
  }
  Buffer& fleeting = e.memory.add(64);
};

TEST_F(RequesterWithFleetingMemory, ForgetsABadRequestThatALateAcknowledgementCovers) {
  post(IBV_WR_RDMA_WRITE, 8);
  post_fleeting();
  e.transmitted();
  e.memory.deregister(fleeting);
  post(IBV_WR_RDMA_WRITE, 8);
  e.wait_for_timer();
  // Sends again from the first request up to the second, which cannot be sent again.
  EXPECT_EQ(e.transmitted().back().psn(), 100u);
  acknowledge(101);
  expect_sent(1);
  expect_sent(2);
  EXPECT_THAT(psns(e.transmitted()), ElementsAre(102));
  acknowledge(102);
  expect_sent(3);
  EXPECT_EQ(e.qp->state(), IBV_QPS_RTS);
  EXPECT_EQ(e.qp->deadline(), kNever);
}

class RequesterWithoutTimeout : public RequesterWithFleetingMemory {
 protected:
  void tune(QpAttributes& attributes) override { attributes.timeout = 0; }
};

TEST_F(RequesterWithoutTimeout, AsksWithTheLatestPacketThatCanStillBeSent) {
  post(IBV_WR_RDMA_WRITE, 8);
  for (int i = 0; i < 3; ++i) post_fleeting();
  EXPECT_THAT(psns(transmit_some(3)), ElementsAre(100, 101, 102));
  e.memory.deregister(fleeting);
  const auto packets = e.transmitted();
  ASSERT_THAT(psns(packets), ElementsAre(100));
  EXPECT_TRUE(packets[0].asks());
  acknowledge(102);
  for (uint64_t id = 1; id <= 3; ++id) expect_sent(id);
  e.transmitted();
  expect_sent(4, IBV_WC_LOC_PROT_ERR);
}

TEST_F(RequesterWithoutTimeout, WaitsForThePacketThatAsked) {
  post_fleeting();
  EXPECT_TRUE(e.transmitted().at(0).asks());
  for (int i = 0; i < 3; ++i) post_fleeting();
  EXPECT_THAT(psns(transmit_some(2)), ElementsAre(101, 102));
  e.memory.deregister(fleeting);
  EXPECT_TRUE(e.transmitted().empty());
  expect_none_sent();
  acknowledge(100);
  expect_sent(1);
  expect_sent(2, IBV_WC_LOC_PROT_ERR);
  expect_sent(3, IBV_WC_WR_FLUSH_ERR);
  expect_sent(4, IBV_WC_WR_FLUSH_ERR);
}

TEST_F(RequesterWithoutTimeout, FailsTheFirstRequestIfNoneCanBeSentAgain) {
  for (int i = 0; i < 3; ++i) post_fleeting();
  EXPECT_EQ(transmit_some(2).size(), 2u);
  e.memory.deregister(fleeting);
  EXPECT_TRUE(e.transmitted().empty());
  expect_sent(1, IBV_WC_LOC_PROT_ERR);
  expect_sent(2, IBV_WC_WR_FLUSH_ERR);
  expect_sent(3, IBV_WC_WR_FLUSH_ERR);
}

// The memory of a message is deregistered halfway, so its earlier packets cannot be sent again either.
TEST_F(RequesterWithoutTimeout, AsksWithAPacketOfTheMessageBefore) {
  post(IBV_WR_SEND, 8);
  ibv_send_wr wr = request(IBV_WR_SEND, 0);
  Buffer& longer = e.memory.add(1024);
  *wr.sg_list = longer.sge(0, 1024);
  ASSERT_TRUE(post_send(*e.qp, wr));
  EXPECT_THAT(psns(transmit_some(3)), ElementsAre(100, 101, 102));
  e.memory.deregister(longer);
  EXPECT_THAT(psns(e.transmitted()), ElementsAre(100));
  acknowledge(100);
  expect_sent(1);
  expect_sent(2, IBV_WC_LOC_PROT_ERR);
}

TEST_F(RequesterWithoutTimeout, StaysWithoutOneThatIsSetWhileATimerRuns) {
  e.attributes().timeout = 14;
  post(IBV_WR_SEND, 8);
  e.transmitted();
  e.attributes().timeout = 0;
  e.wait_for_timer();
  EXPECT_EQ(e.qp->deadline(), kNever);
  acknowledge(100);
  expect_sent(1);
}

TEST_F(RequesterWithoutTimeout, FailsARequestWhoseRefusalOvertakesAnAnswer) {
  post(IBV_WR_RDMA_READ, 10);
  post(IBV_WR_RDMA_WRITE, 10);
  const auto packets = e.transmitted();
  nak(101, NakCode::kRemoteAccess);
  expect_none_sent();
  respond_read(packets[0], local.bytes(0, 10));
  expect_sent(1);
  expect_sent(2, IBV_WC_REM_ACCESS_ERR);
}

// The response to the second has no memory to go to, the peer refuses the third, and the response to the
// first is lost.
TEST_F(RequesterWithoutTimeout, GivesUpOnAnAnswerThatIsMissingBeforeTwoFailures) {
  post(IBV_WR_RDMA_READ, 8);
  post_fleeting(IBV_WR_RDMA_READ);
  post(IBV_WR_RDMA_WRITE, 8);
  const auto packets = e.transmitted();
  e.memory.deregister(fleeting);
  respond_read(packets[1], local.bytes(0, 8));
  nak(102, NakCode::kRemoteAccess);
  for (int i = 0; i < 20 && e.qp->deadline() != kNever; ++i) {
    e.wait_for_timer();
    e.transmitted();
  }
  expect_sent(1, IBV_WC_RETRY_EXC_ERR);
  expect_sent(2, IBV_WC_WR_FLUSH_ERR);
  expect_sent(3, IBV_WC_WR_FLUSH_ERR);
}

TEST_F(RequesterErrors, TakesASequenceErrorOfTheNextPsnForAnAcknowledgement) {
  post(IBV_WR_SEND, 10);
  e.transmitted();
  nak(101, NakCode::kSequenceError);
  expect_sent(1);
  EXPECT_TRUE(e.transmitted().empty());
}

// The true response comes after it.
TEST_F(RequesterErrors, LeavesOutARefusalOfAPsnThatWasNotSent) {
  uint64_t id = 0;
  for (const ibv_wr_opcode opcode :
       {IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP}) {
    for (const NakCode code : {NakCode::kRemoteAccess, NakCode::kInvalidRequest, NakCode::kSequenceError}) {
      SCOPED_TRACE(opcode);
      e.qp->enter(IBV_QPS_RESET);
      e.bring_up();
      post(opcode, 8);
      const auto packets = e.transmitted();
      ASSERT_EQ(packets.size(), 1u);
      nak(101, code);
      expect_none_sent();
      if (opcode == IBV_WR_RDMA_READ) {
        respond_read(packets[0], local.bytes(0, 8));
      } else {
        respond_atomic(100, 5);
      }
      expect_sent(++id);
      expect_none_sent();
      EXPECT_EQ(e.qp->state(), IBV_QPS_RTS);
      EXPECT_FALSE(e.qp->has_outstanding());
      e.transmitted();
    }
  }
}

TEST_F(RequesterErrors, FailsAMessageWhoseMemoryEndsInItsMidst) {
  post(IBV_WR_SEND, 10);
  const ibv_sge pieces[] = {local.sge(0, 300), {local.address(), 300, 0xdead}};
  ibv_send_wr wr = request(IBV_WR_SEND, 0);
  wr.sg_list = const_cast<ibv_sge*>(pieces);
  wr.num_sge = 2;
  ASSERT_TRUE(post_send(*e.qp, wr));
  const auto packets = e.transmitted();
  ASSERT_GE(packets.size(), 2u);
  EXPECT_TRUE(packets.back().asks());
  acknowledge(100);
  expect_sent(1);
  expect_sent(2, IBV_WC_LOC_PROT_ERR);
}

TEST_F(RequesterErrors, FailsAReadAfterAReadWithABadKey) {
  post(IBV_WR_RDMA_READ, 10);
  post_with_key(IBV_WR_RDMA_READ, 10, 0xdead);
  const auto packets = e.transmitted();
  ASSERT_THAT(psns(packets), ElementsAre(100, 101));
  respond_read(packets[0], local.bytes(0, 10));
  expect_sent(1);
  expect_none_sent();
  respond_read(packets[1], local.bytes(0, 10));
  expect_sent(2, IBV_WC_LOC_PROT_ERR);
}

TEST_F(RequesterErrors, FailsAResponseWhosePlaceIsGoneMeanwhile) {
  Buffer& place = e.memory.add(100);
  ibv_send_wr wr = request(IBV_WR_RDMA_READ, 10);
  *wr.sg_list = place.sge(0, 10);
  ASSERT_TRUE(post_send(*e.qp, wr));
  const auto packets = e.transmitted();
  e.memory.deregister(place);
  respond_read(packets.at(0), local.bytes(0, 10));
  expect_sent(1, IBV_WC_LOC_PROT_ERR);
}

TEST_F(RequesterErrors, RefusesAnAtomicWithoutRoomForTheOldValue) {
  post(IBV_WR_ATOMIC_FETCH_AND_ADD, 4);
  EXPECT_TRUE(e.transmitted().empty());
  expect_sent(1, IBV_WC_LOC_LEN_ERR);
}

TEST_F(RequesterErrors, RefusesAMessageLongerThanAPortTakes) {
  ibv_sge pieces[] = {local.sge(0, 1 << 20), local.sge(0, 1 << 20)};
  pieces[0].length = 1u << 30;
  ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, 0);
  wr.sg_list = pieces;
  wr.num_sge = 2;
  ASSERT_TRUE(post_send(*e.qp, wr));
  EXPECT_TRUE(e.transmitted().empty());
  expect_sent(1, IBV_WC_LOC_LEN_ERR);
}

TEST_F(RequesterErrors, RefusesAnOperationThatIsNotOfItsService) {
  post(IBV_WR_SEND, 10);
  post(IBV_WR_TSO, 10);
  e.transmitted();
  acknowledge(100);
  expect_sent(1);
  expect_sent(2, IBV_WC_LOC_QP_OP_ERR);
}

TEST_F(RequesterErrors, FlushesWhatIsPostedInError) {
  e.qp->enter(IBV_QPS_ERR);
  post(IBV_WR_SEND, 10);
  EXPECT_TRUE(e.qp->has_urgent());
  e.transmit();
  expect_sent(1, IBV_WC_WR_FLUSH_ERR);
  EXPECT_FALSE(e.qp->has_urgent());
}

TEST_F(RequesterErrors, ForgetsEverythingInReset) {
  post(IBV_WR_SEND, 10);
  e.transmitted();
  post(IBV_WR_SEND, 10);
  e.qp->enter(IBV_QPS_RESET);
  expect_none_sent();
  EXPECT_EQ(e.qp->deadline(), kNever);
  acknowledge(100);
  expect_none_sent();
  e.bring_up();
  EXPECT_TRUE(e.transmitted().empty());
  post(IBV_WR_SEND, 10);
  EXPECT_THAT(psns(e.transmitted()), ElementsAre(100));
  acknowledge(100);
  expect_sent(3);
}

}  // namespace
}  // namespace verbena::transport
