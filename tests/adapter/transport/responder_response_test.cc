// SPDX-License-Identifier: Apache-2.0
// READ responses and atomics, and the answers to their duplicates.
#include "adapter/transport/support/responder_test.h"
#include "control/protocol/status_page.h"

namespace verbena::transport {
namespace {

using testing::ElementsAre;
using testing::IsSupersetOf;
using testing::UnorderedElementsAre;
using Op = roce::Operation;

class ResponderResponses : public ResponderTest {
 protected:
  // Expects the response to a READ of target[offset, offset + length), beginning with `psn`.
  void expect_response(std::span<const SentPacket> packets, uint32_t psn, uint32_t offset, uint32_t length,
                       uint32_t msn) {
    const uint32_t expected = std::max<uint32_t>(1, (length + 255) / 256);
    ASSERT_EQ(packets.size(), expected);
    for (uint32_t i = 0; i < expected; ++i) {
      const bool first = i == 0;
      const bool last = i + 1 == expected;
      EXPECT_EQ(packets[i].operation(), first ? (last ? Op::kReadResponseOnly : Op::kReadResponseFirst)
                                              : (last ? Op::kReadResponseLast : Op::kReadResponseMiddle));
      EXPECT_EQ(packets[i].psn(), psn + i);
      EXPECT_EQ(packets[i].headers.syndrome, roce::ack_syndrome());
      EXPECT_EQ(packets[i].headers.msn, msn);
      const uint32_t bytes = std::min<uint32_t>(256, length - i * 256);
      EXPECT_TRUE(std::ranges::equal(packets[i].payload, target.bytes(offset + i * 256, bytes)));
    }
  }
  void expect_original(const SentPacket& packet, uint32_t psn, uint64_t original, uint32_t msn) {
    EXPECT_EQ(packet.operation(), Op::kAtomicAcknowledge);
    EXPECT_EQ(packet.psn(), psn);
    EXPECT_EQ(packet.headers.atomic_original, original);
    EXPECT_EQ(packet.headers.syndrome, roce::ack_syndrome());
    EXPECT_EQ(packet.headers.msn, msn);
  }
};

TEST_F(ResponderResponses, AnswersARead) {
  read(200, 100, 600);
  EXPECT_TRUE(e.qp->has_urgent());
  expect_response(answers(), 200, 100, 600, 1);
  EXPECT_EQ(e.qp->next_receive_psn(), roce::Psn(203));
  EXPECT_FALSE(e.qp->has_acknowledgement()) << "the response acknowledges";
}

// The progress is published before the response, so that the agent can answer if the process is stopped then.
TEST_F(ResponderResponses, ShowsHowFarItHasComeBeforeItAcknowledges) {
  e.attributes().rnr_retry = 5;
  read(200, 100, 600);
  e.sink.room = 1;
  e.transmit();
  const auto progress = protocol::decode_responder_progress(e.progress);
  EXPECT_EQ(progress.expected, 203u);
  EXPECT_EQ(progress.msn, 1u);
  EXPECT_EQ(progress.rnr_retry, 5u);
  EXPECT_TRUE(progress.is_exact);
}

TEST_F(ResponderResponses, AnswersAReadOfOnePacketAndOfNothing) {
  read(200, 0, 256);
  read(201, 0, 0x1234, 0xdead);  // fails: a wrong key is an error for any length but zero
  EXPECT_EQ(e.qp->state(), IBV_QPS_ERR);
  e.qp->enter(IBV_QPS_RESET);
  e.bring_up(IBV_QPS_RTR);
  read(200, 0x1234, 0, 0xdead);
  expect_response(answers(), 200, 0, 0, 1);
}

TEST_F(ResponderResponses, ReadsMemoryWhenItAnswers) {
  read(200, 0, 256);
  target.fill(99);
  expect_response(answers(), 200, 0, 256, 1);
}

TEST_F(ResponderResponses, ContinuesAResponseWhenThereIsRoom) {
  read(200, 0, 1000);
  e.sink.room = 1;
  EXPECT_EQ(e.transmit(), TransmitResult::kBusy);
  e.sink.room = -1;
  EXPECT_EQ(e.transmit(2), TransmitResult::kMore);
  EXPECT_EQ(e.transmit(), TransmitResult::kIdle);
  const std::vector<SentPacket> all(e.sink.packets.begin(), e.sink.packets.end());
  expect_response(all, 200, 0, 1000, 1);
}

TEST_F(ResponderResponses, AnswersInOrderBeforeItAcknowledges) {
  post();
  read(200, 0, 300);
  fetch_add(202, 1);
  send(Op::kSendOnly, 203, data(1));
  const auto packets = answers();
  EXPECT_THAT(operations(packets), ElementsAre(Op::kReadResponseFirst, Op::kReadResponseLast,
                                               Op::kAtomicAcknowledge, Op::kAcknowledge));
  EXPECT_THAT(psns(packets), ElementsAre(200, 201, 202, 203));
}

TEST_F(ResponderResponses, DoesNotAcknowledgeAheadOfAResponse) {
  post();
  read(200, 0, 1000);
  send(Op::kSendOnly, 204, data(1));
  e.transmit(2);
  for (const SentPacket& p : e.sink.packets) EXPECT_NE(p.operation(), Op::kAcknowledge);
}

TEST_F(ResponderResponses, ExecutesFetchAndAdd) {
  target.word(0) = 40;
  fetch_add(200, 2);
  const auto packets = answers();
  ASSERT_EQ(packets.size(), 1u);
  expect_original(packets[0], 200, 40, 1);
  EXPECT_EQ(target.word(0), 42u);
}

TEST_F(ResponderResponses, ExecutesCompareAndSwap) {
  target.word(1) = 5;
  for (const auto& [psn, compare] : {std::pair{200u, 6u}, std::pair{201u, 5u}}) {
    roce::Headers headers = request(Op::kCompareSwap, psn, {});
    headers.address = target.address(8);
    headers.rkey = target.key();
    headers.compare = compare;
    headers.swap_add = 7;
    e.receive(headers);
  }
  const auto packets = answers();
  ASSERT_EQ(packets.size(), 2u);
  expect_original(packets[0], 200, 5, 1);
  expect_original(packets[1], 201, 5, 2);
  EXPECT_EQ(target.word(1), 7u);
}

TEST_F(ResponderResponses, RepeatsTheAnswerOfAnAtomicWithoutExecutingItAgain) {
  target.word(0) = 40;
  fetch_add(200, 2);
  fetch_add(201, 10);
  answers();
  for (int i = 0; i < 3; ++i) {
    fetch_add(200, 2);
    fetch_add(201, 10);
    const auto packets = answers();
    ASSERT_EQ(packets.size(), 2u);
    expect_original(packets[0], 200, 40, 1);
    expect_original(packets[1], 201, 42, 2);
  }
  EXPECT_EQ(target.word(0), 52u);
}

TEST_F(ResponderResponses, RepeatsAReadFromWhereItIsAskedTo) {
  read(200, 0, 1000);
  answers();
  read(202, 512, 488);
  expect_response(answers(), 202, 512, 488, 1);
  read(200, 0, 1000);
  expect_response(answers(), 200, 0, 1000, 1);
}

TEST_F(ResponderResponses, DropsADuplicateReadThatIsNone) {
  read(200, 0, 1000);
  answers();
  read(201, 0, 1000);                                 // a different range
  read(201, target.address(256), 900, target.key());  // beyond the end of the first one
  read(201, target.address(256), 744, target.key() ^ 1);
  read(202, target.address(256), 488, target.key());  // a wrong address for that PSN
  expect_silence();
  EXPECT_EQ(e.qp->state(), IBV_QPS_RTR);
}

TEST_F(ResponderResponses, DropsADuplicateThatItHasSavedNoMore) {
  for (uint32_t i = 0; i < 5; ++i) {
    fetch_add(200 + i, 1);
    answers();
  }
  fetch_add(200, 1);  // max_dest_rd_atomic is 4
  expect_silence();
  fetch_add(201, 1);
  EXPECT_EQ(answers().size(), 1u);
}

TEST_F(ResponderResponses, RefusesMoreReadsAtOnceThanMaxDestRdAtomic) {
  for (uint32_t i = 0; i < 5; ++i) read(200 + i, 0, 10);
  EXPECT_EQ(e.qp->state(), IBV_QPS_ERR);
  const auto packets = answers();
  ASSERT_EQ(packets.size(), 5u) << "those that were taken are answered before the refusal";
  EXPECT_EQ(packets[3].operation(), Op::kReadResponseOnly);
  EXPECT_EQ(packets[4].headers.syndrome, roce::nak_syndrome(NakCode::kInvalidRequest));
  EXPECT_EQ(packets[4].psn(), 204u);
}

TEST_F(ResponderResponses, RefusesReadsAndAtomicsWithMaxDestRdAtomicZero) {
  e.qp->enter(IBV_QPS_RESET);
  e.attributes().max_dest_rd_atomic = 0;
  e.bring_up(IBV_QPS_RTR);
  read(200, 0, 10);
  expect_nak(200, NakCode::kInvalidRequest, 0);
}

TEST_F(ResponderResponses, AnswersOnceWhatIsAskedTwiceBeforeItCouldAnswer) {
  read(200, 0, 300);
  fetch_add(202, 1);
  read(200, 0, 300);
  fetch_add(202, 1);
  EXPECT_THAT(psns(answers()), ElementsAre(200, 201, 202));
}

TEST_F(ResponderResponses, BeginsAResponseAgainThatIsAskedForAgain) {
  read(200, 0, 1000);
  fetch_add(204, 1);
  e.transmit(3);
  EXPECT_THAT(psns({e.sink.packets.begin(), e.sink.packets.end()}), ElementsAre(200, 201, 202));
  e.sink.packets.clear();
  read(201, 256, 744);  // 201 was lost; requests the rest, including the atomic
  const auto packets = answers();
  EXPECT_THAT(psns(packets), ElementsAre(201, 202, 203, 204));
  EXPECT_EQ(packets[0].operation(), Op::kReadResponseFirst);
}

TEST_F(ResponderResponses, LosesNoAnswerToADuplicateOfAnEarlierRequest) {
  read(200, 0, 300);
  answers();
  fetch_add(202, 1);
  read(200, 0, 300);  // a duplicate made by the network
  EXPECT_THAT(psns(answers()), ElementsAre(200, 201, 202));
}

TEST_F(ResponderResponses, TakesANewRequestThoughARepeatedAnswerWaits) {
  e.qp->enter(IBV_QPS_RESET);
  e.attributes().max_dest_rd_atomic = 1;
  e.bring_up(IBV_QPS_RTR);
  fetch_add(200, 1);
  answers();
  fetch_add(200, 1);  // a duplicate made by the network, which arrives only now
  fetch_add(201, 1);
  EXPECT_EQ(e.qp->state(), IBV_QPS_RTR);
  EXPECT_THAT(psns(answers()), ElementsAre(200, 201));
}

TEST_F(ResponderResponses, TellWhoAsksAgainThatAnyPartMayBeAskedFor) {
  read(200, 0, 1000);
  answers();
  read(201, 256, 256);
  const auto packets = e.transmitted();
  EXPECT_EQ(
      std::ranges::count(packets, roce::kSackOpcode, [](const SentPacket& p) { return p.headers.opcode; }),
      1);
}

TEST_F(ResponderResponses, SendsAPartAgainBesidesTheRest) {
  read(200, 0, 1000);
  e.transmit(3);
  e.sink.packets.clear();
  read(201, 256, 256);  // 201 was lost; 203 has not been sent yet
  EXPECT_THAT(psns(answers()), UnorderedElementsAre(201, 203));
}

TEST_F(ResponderResponses, SendsPartsAgainHoweverManyNewAnswersWait) {
  const uint32_t most = e.attributes().max_dest_rd_atomic;
  read(200, 0, 1000);
  answers();
  for (uint32_t i = 1; i < most; ++i) read(203 + i, 0, 256);
  for (const uint32_t part : {0u, 2u}) read(200 + part, part * 256, 256);
  const auto packets = psns(answers());
  EXPECT_THAT(packets, IsSupersetOf({200u, 202u, 204u, 202u + most}));
  EXPECT_EQ(packets.size(), most + 1);
}

TEST_F(ResponderResponses, RefusesAReadWhoseRegionGoesAwayBeforeItsAnswer) {
  Buffer& fleeting = e.memory.add(1000);
  read(200, fleeting.address(), 1000, fleeting.key());
  fetch_add(204, 1);
  e.transmit(2);
  e.memory.deregister(fleeting);
  e.sink.packets.clear();
  const auto packets = answers();
  ASSERT_EQ(packets.size(), 1u);
  EXPECT_EQ(packets[0].psn(), 202u);
  EXPECT_EQ(packets[0].headers.syndrome, roce::nak_syndrome(NakCode::kRemoteAccess));
  EXPECT_EQ(e.qp->state(), IBV_QPS_ERR);
}

// A requester whose timer fired too early has the response, and may have invalidated the key since.
TEST_F(ResponderResponses, OnlySaysSoIfTheRegionOfARepeatedAnswerHasGone) {
  Buffer& fleeting = e.memory.add(1000);
  read(200, fleeting.address(), 1000, fleeting.key());
  answers();
  read(200, fleeting.address(), 1000, fleeting.key());
  e.memory.deregister(fleeting);
  const auto packets = answers();
  ASSERT_EQ(packets.size(), 1u);
  EXPECT_EQ(packets[0].psn(), 200u);
  EXPECT_EQ(packets[0].headers.syndrome, roce::nak_syndrome(NakCode::kRemoteAccess));
  EXPECT_EQ(e.qp->state(), IBV_QPS_RTR);
  fetch_add(204, 1);
  EXPECT_THAT(psns(answers()), ElementsAre(204));
}

// A requester that got the packets sent so far ignores the first NAK, so the rest is refused separately.
TEST_F(ResponderResponses, RefusesTheRestByItselfIfTheRegionOfAnAnswerBegunAgainHasGone) {
  Buffer& fleeting = e.memory.add(1000);
  read(200, fleeting.address(), 1000, fleeting.key());
  e.transmit(2);
  e.sink.packets.clear();
  read(200, fleeting.address(), 1000, fleeting.key());
  e.memory.deregister(fleeting);
  const auto packets = answers();
  EXPECT_THAT(psns(packets), ElementsAre(200, 202));
  for (const SentPacket& packet : packets) {
    EXPECT_EQ(packet.headers.syndrome, roce::nak_syndrome(NakCode::kRemoteAccess));
  }
  EXPECT_EQ(e.qp->state(), IBV_QPS_ERR);
}

TEST_F(ResponderResponses, StopsAnsweringInError) {
  read(200, 0, 1000);
  e.transmit(1);
  e.sink.packets.clear();
  e.qp->enter(IBV_QPS_ERR);
  expect_silence();
}

}  // namespace
}  // namespace verbena::transport
