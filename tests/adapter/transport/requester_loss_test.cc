// SPDX-License-Identifier: Apache-2.0
// The requester when packets or their answers are lost, or the peer is not ready.
#include <set>

#include "adapter/transport/support/requester_test.h"

namespace verbena::transport {
namespace {

using testing::ElementsAre;
using Op = roce::Operation;
using std::chrono::milliseconds;

class RequesterLoss : public RequesterTest {
 protected:
  // Returns the time from a request that the peer never answers to its failure.
  Duration time_to_give_up(uint8_t timeout, uint8_t retries) {
    e.qp->enter(IBV_QPS_RESET);
    e.attributes().timeout = timeout;
    e.attributes().retry_count = retries;
    e.bring_up();
    post(IBV_WR_SEND, 10);
    const TimePoint began = e.now;
    for (e.transmit(); e.send_cq->empty() && e.qp->deadline() != kNever; e.transmit()) e.wait_for_timer();
    e.sink.packets.clear();
    EXPECT_EQ(e.sent().status, IBV_WC_RETRY_EXC_ERR);
    return e.now - began;
  }
};

TEST_F(RequesterLoss, GoesBackToTheOldestUnacknowledgedAtASequenceNak) {
  for (int i = 0; i < 4; ++i) post(IBV_WR_SEND, 300);  // PSNs 100 to 107
  e.transmitted();
  nak(103, NakCode::kSequenceError);  // the second packet of the second message is missing
  expect_sent(1);
  const auto packets = e.transmitted();
  EXPECT_THAT(psns(packets), ElementsAre(103, 104, 105, 106, 107));
  EXPECT_EQ(packets[0].operation(), Op::kSendLast);
  EXPECT_EQ(e.counter(kRetransmittedPackets), 5u);
  EXPECT_EQ(e.counter(kSequenceNaksReceived), 1u);
  acknowledge(107);
  for (uint64_t id = 2; id <= 4; ++id) expect_sent(id);
}

TEST_F(RequesterLoss, SendsTheSameBytesAgain) {
  post(IBV_WR_RDMA_WRITE, 600);
  const auto first = e.transmitted();
  nak(100, NakCode::kSequenceError);
  const auto second = e.transmitted();
  ASSERT_EQ(first.size(), second.size());
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(first[i].payload, second[i].payload);
    EXPECT_EQ(first[i].operation(), second[i].operation());
    EXPECT_EQ(first[i].headers.address, second[i].headers.address);
  }
}

TEST_F(RequesterLoss, TakesANakAsAcknowledgementOfAllBeforeIt) {
  for (int i = 0; i < 3; ++i) post(IBV_WR_SEND, 10);
  e.transmitted();
  nak(102, NakCode::kSequenceError);
  expect_sent(1);
  expect_sent(2);
  expect_none_sent();
}

TEST_F(RequesterLoss, GoesBackWhenNoAnswerComesInTime) {
  post(IBV_WR_SEND, 600);
  e.transmitted();
  EXPECT_EQ(e.qp->deadline(), e.now + roce::ack_timeout(14));
  e.wait_for_timer();
  EXPECT_THAT(psns(e.transmitted()), ElementsAre(100)) << "one packet finds out";
  EXPECT_EQ(e.counter(kLocalAckTimeouts), 1u);
  acknowledge(100);
  EXPECT_THAT(psns(e.transmitted()), ElementsAre(101, 102));
}

// The wait is randomized, so that many QPs that time out together do not retry together.
TEST_F(RequesterLoss, TriesAgainAtTimesOfItsOwn) {
  post(IBV_WR_SEND, 600);
  e.transmitted();
  const Duration asked = roce::ack_timeout(14);
  std::set<Duration> waits;
  for (int i = 0; i < 6; ++i) {
    e.wait_for_timer();
    e.transmitted();
    const Duration wait = e.qp->deadline() - e.now;
    EXPECT_GT(wait, asked);
    EXPECT_LE(wait, asked * 9 / 7);
    waits.insert(wait);
  }
  EXPECT_GT(waits.size(), 2u);
}

TEST_F(RequesterLoss, WaitsForNoLessThanTheConfiguredTimeout) {
  e.attributes().timeout = 1;  // 8 us: no machine answers that fast reliably
  post(IBV_WR_SEND, 10);
  e.transmit();
  EXPECT_EQ(e.qp->deadline(), e.now + e.qp->config().least_ack_timeout);
}

TEST_F(RequesterLoss, WaitsForEverWithTimeoutZero) {
  e.attributes().timeout = 0;
  post(IBV_WR_SEND, 10);
  e.transmit();
  EXPECT_EQ(e.qp->deadline(), kNever);
}

TEST_F(RequesterLoss, StartsItsTimerAnewWithEveryProgress) {
  for (int i = 0; i < 2; ++i) post(IBV_WR_SEND, 10);
  e.transmit();
  e.now += milliseconds(60);
  acknowledge(100);
  EXPECT_EQ(e.qp->deadline(), e.now + roce::ack_timeout(14));
}

TEST_F(RequesterLoss, DoesNotSendAgainWhatWasAcknowledgedMeanwhile) {
  for (int i = 0; i < 4; ++i) post(IBV_WR_SEND, 10);
  e.transmitted();
  e.wait_for_timer();
  acknowledge(102);  // the acknowledgement was only late
  EXPECT_THAT(psns(e.transmitted()), ElementsAre(103));
}

// Over shared memory, packets wait until the peer's process gets a processor.
TEST_F(RequesterLoss, CountsNoTimeoutWhileThePeerHasNotLooked) {
  e.attributes().retry_count = 0;
  e.qp->enter(IBV_QPS_RESET);
  e.bring_up();
  post(IBV_WR_SEND, 10);
  e.transmitted();
  e.sink.lying = 3;
  e.sink.looked = 2;
  for (int round = 0; round < 20; ++round) {
    e.wait_for_timer();
    EXPECT_TRUE(e.transmitted().empty()) << "it lies there already";
    expect_none_sent();
  }
  EXPECT_EQ(e.counter(kLocalAckTimeouts), 0u);
  e.sink.looked = 3;
  acknowledge(100);
  expect_sent(1);
}

TEST_F(RequesterLoss, CountsATimeoutWhenThePeerHasLookedAndSaysNothing) {
  e.attributes().retry_count = 0;
  e.qp->enter(IBV_QPS_RESET);
  e.bring_up();
  post(IBV_WR_SEND, 10);
  e.transmitted();
  e.sink.lying = 3;
  e.wait_for_timer();
  expect_none_sent();
  e.sink.looked = 3;
  e.sink.lying = 5;  // other senders have put more into the ring
  e.wait_for_timer();
  expect_none_sent();  // the peer may have looked only just now
  e.wait_for_timer();
  expect_sent(1, IBV_WC_RETRY_EXC_ERR);
}

// Other senders fill the ring all the time.
TEST_F(RequesterLoss, CountsEachTimeoutOfAPeerThatGoesOnLooking) {
  e.attributes().retry_count = 3;
  e.qp->enter(IBV_QPS_RESET);
  e.bring_up();
  post(IBV_WR_SEND, 10);
  e.transmitted();
  for (uint32_t fired = 1; e.send_cq->empty(); ++fired) {
    ASSERT_LE(fired, 3u + 3);
    e.sink.looked = std::exchange(e.sink.lying, e.sink.lying + 100);
    e.wait_for_timer();
    e.transmitted();
  }
  expect_sent(1, IBV_WC_RETRY_EXC_ERR);
}

TEST_F(RequesterLoss, HasPatienceAgainWithAPeerThatWasNotReady) {
  e.attributes().retry_count = 0;
  e.qp->enter(IBV_QPS_RESET);
  e.bring_up();
  post(IBV_WR_SEND, 10);
  for (int round = 0; round < 3; ++round) {
    e.transmitted();
    ++e.sink.lying;
    const TimePoint until = e.now + std::chrono::seconds(3);
    while (e.now < until) e.wait_for_timer();
    e.sink.looked = e.sink.lying;
    rnr(100, 12);
    e.wait_for_timer();
  }
  EXPECT_EQ(e.counter(kLocalAckTimeouts), 0u);
  expect_none_sent();
}

// A debugger may have stopped the peer's process. When the process has ended, no packets wait in its ring.
TEST_F(RequesterLoss, WaitsForAPeerThatDoesNotLookAsLongAsItLives) {
  e.attributes().retry_count = 0;
  e.qp->enter(IBV_QPS_RESET);
  e.bring_up();
  post(IBV_WR_SEND, 10);
  e.transmitted();
  e.sink.lying = 1;
  const TimePoint until = e.now + std::chrono::minutes(10);
  while (e.now < until) {
    e.wait_for_timer();
    EXPECT_TRUE(e.transmitted().empty());
  }
  expect_none_sent();
  EXPECT_EQ(e.counter(kLocalAckTimeouts), 0u);
  e.sink.looked = 1;
  e.wait_for_timer();
  e.wait_for_timer();
  expect_sent(1, IBV_WC_RETRY_EXC_ERR);
}

// The agent of a stopped process answers in its place. That uses up no retry, whatever rnr_retry is.
TEST_F(RequesterLoss, WaitsForAPeerWhoseProcessIsStopped) {
  e.attributes().retry_count = 1;
  e.attributes().rnr_retry = 0;
  e.qp->enter(IBV_QPS_RESET);
  e.bring_up();
  post(IBV_WR_SEND, 10);
  EXPECT_THAT(psns(e.transmitted()), ElementsAre(100));
  for (int round = 0; round < 100; ++round) {
    e.wait_for_timer();
    EXPECT_THAT(psns(e.transmitted()), ElementsAre(100)) << round;
    roce::Headers word;
    word.opcode = roce::kStoppedOpcode;
    word.destination = roce::Qpn(0x11);
    word.psn = roce::Psn(100);
    EXPECT_EQ(e.receive(word, {}), Verdict::kAccepted);
    EXPECT_TRUE(e.transmitted().empty()) << "it waits";
  }
  expect_none_sent();
  acknowledge(100);
  expect_sent(1);
}

TEST_F(RequesterLoss, HasPatienceAgainWithAPeerThatHasBeenHeard) {
  for (uint32_t message = 0; message < 4; ++message) {
    post(IBV_WR_SEND, 10);
    e.transmitted();
    ++e.sink.lying;
    const TimePoint until = e.now + std::chrono::seconds(3);
    while (e.now < until) e.wait_for_timer();
    EXPECT_EQ(e.counter(kLocalAckTimeouts), 0u);
    ++e.sink.looked;
    acknowledge(100 + message);
    expect_sent(message + 1);
  }
}

TEST_F(RequesterLoss, FailsWhenItsRetriesAreUsedUp) {
  e.attributes().retry_count = 2;
  e.qp->enter(IBV_QPS_RESET);
  e.bring_up();
  post(IBV_WR_SEND, 10);
  post(IBV_WR_SEND, 10);
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(e.transmitted().size(), 2u) << round;
    expect_none_sent();
    e.wait_for_timer();
  }
  expect_sent(1, IBV_WC_RETRY_EXC_ERR);
  expect_sent(2, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(e.qp->state(), IBV_QPS_ERR);
  EXPECT_EQ(e.qp->deadline(), kNever);
  EXPECT_TRUE(e.transmitted().empty());
}

// A program expects (retry_cnt + 1) times the timeout. IBTA volume 1, 9.7.6.1.3 allows four times as long,
// but programs rely on less.
TEST_F(RequesterLoss, GivesUpAfterTheTimeThatWasAskedFor) {
  for (const uint8_t timeout :
       {uint8_t{12}, uint8_t{13}, uint8_t{14}, uint8_t{17}, uint8_t{20}, uint8_t{31}}) {
    for (const uint8_t retries : {uint8_t{0}, uint8_t{1}, uint8_t{3}, uint8_t{7}}) {
      SCOPED_TRACE(testing::Message() << "timeout " << int{timeout} << ", retry_cnt " << int{retries});
      const Duration took = time_to_give_up(timeout, retries);
      const Duration nominal = std::chrono::nanoseconds(int64_t{4096} << timeout) * (retries + 1);
      EXPECT_GE(took, nominal);
      EXPECT_LE(took, nominal * 3 / 2);
    }
  }
}

// Timeouts below a few milliseconds would take scheduling delays of a busy machine for loss.
TEST_F(RequesterLoss, GivesUpNoSoonerThanAMachineCanBeBusy) {
  for (const uint8_t timeout : {uint8_t{1}, uint8_t{8}, uint8_t{11}}) {
    const Duration floor = e.qp->config().least_ack_timeout * 8;
    const Duration took = time_to_give_up(timeout, 7);
    EXPECT_GE(took, floor);
    EXPECT_LE(took, floor * 3 / 2);
  }
}

TEST_F(RequesterLoss, HasAllItsRetriesAgainAfterProgress) {
  e.attributes().retry_count = 1;
  e.qp->enter(IBV_QPS_RESET);
  e.bring_up();
  for (int i = 0; i < 3; ++i) post(IBV_WR_SEND, 10);
  for (uint32_t psn = 100; psn < 103; ++psn) {
    e.transmit();
    e.wait_for_timer();
    acknowledge(psn);
  }
  EXPECT_EQ(e.qp->state(), IBV_QPS_RTS);
  for (uint64_t id = 1; id <= 3; ++id) expect_sent(id);
}

TEST_F(RequesterLoss, HalvesItsWindowAtALoss) {
  post(IBV_WR_SEND, 1 << 20);
  const auto before = e.transmitted().size();
  nak(100, NakCode::kSequenceError);
  const auto after = e.transmitted().size();
  EXPECT_LE(after, before / 2 + 1);
  EXPECT_GE(after, before / 2 - 1);
}

TEST_F(RequesterLoss, SendsNoMoreThanAFewPacketsAfterATimeout) {
  post(IBV_WR_SEND, 1 << 20);
  e.transmitted();
  e.wait_for_timer();
  const auto packets = e.transmitted();
  EXPECT_GE(packets.size(), 1u);
  EXPECT_LE(packets.size(), 4u);
  EXPECT_TRUE(packets.back().asks());
}

TEST_F(RequesterLoss, NeverStallsWhateverItsWindow) {
  // Loses packets at every window size. A requester whose window is full must have requested an
  // acknowledgement.
  constexpr uint32_t kMessages = 16;
  for (uint32_t i = 0; i < kMessages; ++i) post(IBV_WR_SEND, 1 << 20);
  uint32_t acknowledged = 99;
  uint32_t round = 0;
  for (; e.qp->has_outstanding() || e.qp->has_urgent(); ++round) {
    const auto packets = e.transmitted();
    ASSERT_FALSE(packets.empty()) << round;
    ASSERT_TRUE(packets.back().asks()) << round;
    if (round % 7 == 3 || round % 31 < 3) {
      nak(acknowledged + 1, NakCode::kSequenceError);
    } else {
      acknowledged = packets.back().psn();
      acknowledge(acknowledged);
    }
  }
  EXPECT_GT(round, 200u);
  for (uint64_t id = 1; id <= kMessages; ++id) expect_sent(id);
}

// ---- receiver not ready

TEST_F(RequesterLoss, WaitsAsLongAsAnRnrNakSays) {
  post(IBV_WR_SEND, 10);
  post(IBV_WR_SEND, 10);
  e.transmitted();
  rnr(100, 12);
  EXPECT_EQ(e.qp->deadline(), e.now + roce::rnr_delay(12));
  EXPECT_FALSE(e.qp->has_urgent());
  EXPECT_TRUE(e.transmitted().empty());
  e.wait_for_timer();
  EXPECT_THAT(psns(e.transmitted()), ElementsAre(100, 101));
  acknowledge(101);
  expect_sent(1);
  expect_sent(2);
}

TEST_F(RequesterLoss, TriesWithoutEndWithRnrRetrySeven) {
  post(IBV_WR_SEND, 10);
  for (int round = 0; round < 50; ++round) {
    ASSERT_EQ(e.transmitted().size(), 1u);
    rnr(100, 1);
    e.wait_for_timer();
  }
  EXPECT_EQ(e.qp->state(), IBV_QPS_RTS);
}

class RequesterWithTwoRnrRetries : public RequesterTest {
 protected:
  void tune(QpAttributes& attributes) override { attributes.rnr_retry = 2; }
};

TEST_F(RequesterWithTwoRnrRetries, FailsAtTheThirdRnrNak) {
  post(IBV_WR_SEND, 10);
  post(IBV_WR_SEND, 10);
  for (int round = 0; round < 2; ++round) {
    ASSERT_EQ(e.transmitted().size(), 2u);
    rnr(100, 1);
    expect_none_sent();
    e.wait_for_timer();
  }
  ASSERT_EQ(e.transmitted().size(), 2u);
  rnr(100, 1);
  expect_sent(1, IBV_WC_RNR_RETRY_EXC_ERR);
  expect_sent(2, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(e.qp->state(), IBV_QPS_ERR);
}

TEST_F(RequesterWithTwoRnrRetries, TakesADoubledRnrNakForOne) {
  post(IBV_WR_SEND, 10);
  e.transmitted();
  for (int i = 0; i < 5; ++i) rnr(100, 1);
  EXPECT_EQ(e.qp->state(), IBV_QPS_RTS);
}

TEST_F(RequesterWithTwoRnrRetries, HasThemAllAgainAfterProgress) {
  for (int i = 0; i < 3; ++i) post(IBV_WR_SEND, 10);
  for (uint32_t psn = 100; psn < 103; ++psn) {
    for (int round = 0; round < 2; ++round) {
      e.transmitted();
      rnr(psn, 1);
      e.wait_for_timer();
    }
    e.transmitted();
    acknowledge(psn);
  }
  for (uint64_t id = 1; id <= 3; ++id) expect_sent(id);
}

}  // namespace
}  // namespace verbena::transport
