// SPDX-License-Identifier: Apache-2.0
// The responder with packets that arrive early, beyond a gap.
#include <string>

#include "adapter/transport/control_packets.h"
#include "adapter/transport/support/responder_test.h"
#include "base/log.h"

namespace verbena::transport {
namespace {

class ResponderGaps : public ResponderTest {
 protected:
  // Tells the responder that the peer understands SACKs.
  void hear(roce::Psn psn = roce::Psn(200)) { EXPECT_EQ(e.receive(heard_at(psn)), Verdict::kAccepted); }
  // Returns the SACKs that were sent; all other packets go to `others`.
  std::vector<Sack> told() {
    std::vector<Sack> all;
    others.clear();
    for (SentPacket& p : e.transmitted()) {
      if (p.headers.opcode == roce::kSackOpcode) {
        EXPECT_TRUE(p.headers.psn.is_before(roce::Psn(200))) << "nobody is to take it for an answer";
        all.push_back(Sack::read(p.payload));
      } else {
        others.push_back(std::move(p));
      }
    }
    return all;
  }
  std::vector<SentPacket> others;
};

TEST_F(ResponderGaps, ExecutesInOrderWhatItHadKept) {
  post();
  post();
  send(Operation::kSendMiddle, 201, data(256, 256));
  send(Operation::kSendOnly, 203, data(40));
  send(Operation::kSendLast, 202, data(100, 512));
  expect_none_received();
  send(Operation::kSendFirst, 200, data(256));
  expect_received(1, 612);
  expect_received(2, 40);
  EXPECT_TRUE(std::equal(source.begin() + 40, source.begin() + 612, inbox.data() + 40));
}

// It comes by shared memory, while the QP's own route is still a port.
TEST_F(ResponderGaps, KeepsNoSuperPacketThatCameEarly) {
  post();
  post();
  const auto send_both = [&] {
    e.receive(request(Operation::kSendFirst, 201, data(512)), data(512), 2);
    send(Operation::kSendLast, 203, data(10));
  };
  send_both();
  send(Operation::kSendOnly, 200, data(40));
  expect_received(1, 40);
  send_both();
  expect_received(2, 522);
}

TEST_F(ResponderGaps, AcknowledgesAllOfItAtOnce) {
  post();
  post();
  hear();
  send(Operation::kSendOnly, 201, data(40));
  told();
  send(Operation::kSendOnly, 200, data(40));
  expect_ack(201, 2);
}

TEST_F(ResponderGaps, TellsOneWhoUnderstandsWhatHasComeAndSendsNoNak) {
  hear();
  for (const uint32_t psn : {202u, 203u, 207u}) send(Operation::kSendOnly, psn, data(40));
  const auto all = told();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].expected, roce::Psn(200));
  ASSERT_EQ(all[0].count, 2u);
  EXPECT_EQ(all[0].ranges[0].first, roce::Psn(202));
  EXPECT_EQ(all[0].ranges[0].count, 2u);
  EXPECT_EQ(all[0].ranges[1].first, roce::Psn(207));
  EXPECT_TRUE(others.empty());
}

TEST_F(ResponderGaps, TellsOneWhoUnderstandsOfOtherSenders) {
  hear();
  post();
  post();
  send(Operation::kSendOnly, 200, data(40));
  EXPECT_TRUE(told().empty());
  e.now += IncastMeter::kBetweenDips;
  e.incast.add(40, e.now);
  send(Operation::kSendOnly, 201, data(40));
  const auto all = told();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].expected, roce::Psn(202));
  EXPECT_EQ(all[0].incast.senders, 2u);
  EXPECT_EQ(all[0].incast, e.incast.get());
}

TEST_F(ResponderGaps, TellsOneThatItDoesNotKnowBesidesANak) {
  send(Operation::kSendOnly, 201, data(40));
  EXPECT_EQ(told().size(), 1u);
  ASSERT_EQ(others.size(), 1u);
  EXPECT_EQ(others[0].headers.syndrome, roce::nak_syndrome(NakCode::kSequenceError));
  EXPECT_EQ(others[0].psn(), 200u);
}

TEST_F(ResponderGaps, TellsOneWhoNeverAnswersAFewTimesAndNoMore) {
  size_t times = 0;
  for (uint32_t psn = 201; psn < 300; ++psn) {
    send(Operation::kSendOnly, psn, data(40));
    times += told().size();
  }
  EXPECT_EQ(times, size_t{Sack::kMaxUnheard});
}

// A SACK, or the peer's answer to it, may have been lost.
TEST_F(ResponderGaps, TellsOneWhoNeverAnswersOfAGapNowAndThen) {
  size_t times = 0;
  constexpr uint32_t kGaps = Sack::kMaxUnheard + 2 * Sack::kGapsUnheard;
  for (uint32_t gap = 0; gap < kGaps; ++gap) {
    post();
    post();
    send(Operation::kSendOnly, 201 + 2 * gap, data(40));
    times += told().size();
    send(Operation::kSendOnly, 200 + 2 * gap, data(40));
  }
  EXPECT_EQ(times, size_t{Sack::kMaxUnheard + 2});
}

// Otherwise one forged packet would deprive an adapter of its NAKs, the only reports that adapters
// understand.
TEST_F(ResponderGaps, BelievesNobodyWhoDoesNotKnowItsSequenceNumbers) {
  for (const uint32_t psn : {201u, 0u - ReorderBuffer::kMaxAhead, 0x800000u}) hear(roce::Psn(psn));
  send(Operation::kSendOnly, 201, data(40));
  told();
  EXPECT_EQ(others.size(), 1u);
}

TEST_F(ResponderGaps, BelievesOneWhoseWordWasOvertaken) {
  hear(roce::Psn(150));
  send(Operation::kSendOnly, 201, data(40));
  told();
  EXPECT_TRUE(others.empty());
}

// Other connections may have used up the memory for early packets.
TEST_F(ResponderGaps, SendsANakWhereItHasNothingToTellOf) {
  hear();
  size_t taken = 0;
  while (budget_for_reorder_buffers().take(1 << 10, 0)) taken += 1 << 10;
  send(Operation::kSendOnly, 202, data(1024));
  budget_for_reorder_buffers().give_back(taken);
  EXPECT_TRUE(told().empty());
  ASSERT_EQ(others.size(), 1u);
  EXPECT_EQ(others[0].headers.syndrome, roce::nak_syndrome(NakCode::kSequenceError));
}

TEST_F(ResponderGaps, KeepsAReadUntilItsTurn) {
  hear();
  post();
  read(201, 0, 600);
  send(Operation::kSendOnly, 204, data(40));
  const auto all = told();
  ASSERT_EQ(all.size(), 1u);
  ASSERT_EQ(all[0].count, 1u);
  EXPECT_EQ(all[0].ranges[0].count, 4u) << "the PSNs of its response are its own";
  EXPECT_TRUE(others.empty());
  write(Operation::kWriteOnly, 200, data(40), target.address(), 40, target.key());
  told();
  ASSERT_GE(others.size(), 3u);
  EXPECT_EQ(others[0].operation(), Operation::kReadResponseFirst);
  EXPECT_TRUE(std::equal(source.begin(), source.begin() + 40, others[0].payload.begin()))
      << "it reads what was written before it";
  expect_received(1, 40);
}

TEST_F(ResponderGaps, ExecutesAnAtomicOnceHoweverOftenItComes) {
  hear();
  target.word(0) = 10;
  for (int i = 0; i < 3; ++i) fetch_add(201, 5);
  write(Operation::kWriteOnly, 200, data(8), target.address(64), 8, target.key());
  fetch_add(201, 5);
  EXPECT_EQ(target.word(0), 15u);
}

TEST_F(ResponderGaps, ForgetsAllInError) {
  hear();
  post();
  send(Operation::kSendOnly, 201, data(40));
  e.qp->enter(IBV_QPS_ERR);
  EXPECT_EQ(budget_for_reorder_buffers().used(), 0u);
  EXPECT_TRUE(told().empty());
}

TEST_F(ResponderGaps, EndsAtARequestThatIsRefused) {
  hear();
  post();
  write(Operation::kWriteOnly, 201, data(40), target.address(), 40, 0x1234);
  send(Operation::kSendOnly, 202, data(40));
  send(Operation::kSendOnly, 200, data(40));
  expect_received(1, 40);
  told();
  ASSERT_EQ(others.size(), 1u);
  EXPECT_EQ(others[0].headers.syndrome, roce::nak_syndrome(NakCode::kRemoteAccess));
  EXPECT_EQ(others[0].psn(), 201u);
  EXPECT_EQ(e.qp->state(), IBV_QPS_ERR);
  EXPECT_EQ(budget_for_reorder_buffers().used(), 0u);
}

TEST_F(ResponderGaps, LogsWhyItRefusesARequestThatItHadKept) {
  post();
  write(Operation::kWriteOnly, 201, data(40), target.address(), 40, 0x1234);
  const LogLevel before = log_level();
  set_log_level(LogLevel::kError);
  testing::internal::CaptureStderr();
  send(Operation::kSendOnly, 200, data(40));
  const std::string said = testing::internal::GetCapturedStderr();
  set_log_level(before);
  EXPECT_THAT(said, testing::HasSubstr("is refused: "));
  EXPECT_THAT(said, testing::HasSubstr("0x1234"));
}

TEST_F(ResponderGaps, AsksForTheRestAgainWhereThereIsNoReceive) {
  hear();
  post();
  send(Operation::kSendOnly, 201, data(40));
  send(Operation::kSendOnly, 202, data(40));
  told();
  send(Operation::kSendOnly, 200, data(40));
  expect_received(1, 40);
  e.transmitted();
  e.wait_for_timer();  // the RNR NAK is delayed
  told();
  ASSERT_EQ(others.size(), 1u);
  EXPECT_EQ(others[0].headers.syndrome, roce::rnr_syndrome(e.attributes().min_rnr_timer));
  EXPECT_EQ(others[0].psn(), 201u);
  post();
  post();
  send(Operation::kSendOnly, 201, data(40));
  expect_received(2, 40);
  expect_received(3, 40);
}

TEST_F(ResponderGaps, OnePacketFarAheadMakesTheOthersNoDearer) {
  hear();
  const TimePoint began = MonotonicClock::now();
  uint32_t psn = 200;
  for (int round = 0; round < 15; ++round) {
    write(Operation::kWriteOnly, psn + 30000, data(8), target.address(), 8, target.key());
    for (int i = 0; i <= 30000; ++i, ++psn) {
      write(Operation::kWriteOnly, psn, data(8), target.address(), 8, target.key());
    }
  }
  EXPECT_LT(MonotonicClock::now() - began, std::chrono::seconds(2));
}

// A lossless route: the network reorders packets faster than NAKs leave, and early packets are dropped.
class ResponderThatKeepsNothing : public ResponderTest {
 protected:
  void SetUp() override {
    e.routes.route.traits.lossless = true;
    ResponderTest::SetUp();
  }
  void write_word(uint32_t psn, bool asks) {
    roce::Headers headers = request(Operation::kWriteOnly, psn, data(8), asks);
    headers.address = target.address();
    headers.dma_length = 8;
    headers.rkey = target.key();
    e.receive(headers, data(8));
  }
};

TEST_F(ResponderThatKeepsNothing, AsksForADroppedPacketWhenTheOneBeforeItCameMeanwhile) {
  write_word(201, true);
  write_word(200, false);
  expect_nak(201, NakCode::kSequenceError, 1);
  write_word(201, true);
  expect_ack(201, 2);
}

TEST_F(ResponderThatKeepsNothing, AsksForNothingThatWasNotSent) {
  write_word(201, true);
  write_word(200, false);
  write_word(201, false);
  expect_ack(201, 2);
}

TEST_F(ResponderThatKeepsNothing, AcknowledgesInPlaceOfANakThatHasNotLeft) {
  const auto send_word = [&](bool asks) {
    e.receive(request(Operation::kSendOnly, 200, data(8), asks), data(8));
  };
  send_word(true);  // there is no receive request yet
  post();
  send_word(false);
  expect_ack(200, 1);
}

TEST(ResponderOnALosslessWay, KeepsNothing) {
  Endpoint<RcQueuePair> e;
  e.routes.route.traits.lossless = true;
  e.bring_up(IBV_QPS_RTR);
  std::vector<std::byte> payload(40);
  e.receive(rc_headers(roce::Operation::kSendOnly, 201), payload);
  EXPECT_EQ(budget_for_reorder_buffers().used(), 0u);
}

}  // namespace
}  // namespace verbena::transport
