// SPDX-License-Identifier: Apache-2.0
// The requester when READ requests or parts of their responses are lost: it requests the missing part again.
#include <set>

#include "adapter/transport/support/requester_repair.h"

namespace verbena::transport {
namespace {

using std::chrono::milliseconds;
using testing::Contains;
using testing::ElementsAre;
using testing::Not;

class ReadRepair : public RequesterRepair {
 protected:
  void tune(QpAttributes& attributes) override { attributes.max_rd_atomic = 64; }

  // Sends the packets [from, to) of the response to a READ of PSNs [first, past).
  void answer(uint32_t first, uint32_t past, uint32_t from, uint32_t to) {
    using Op = roce::Operation;
    const std::vector<std::byte> data(256);
    for (uint32_t psn = from; psn < to; ++psn) {
      const bool begins = psn == first;
      const bool ends = psn + 1 == past;
      respond(begins ? (ends ? Op::kReadResponseOnly : Op::kReadResponseFirst)
                     : (ends ? Op::kReadResponseLast : Op::kReadResponseMiddle),
              psn, data);
    }
  }
  // Loses the packets `lost` of the response to a READ of eight packets, PSNs 101 to 108. Expects that the
  // range [lost[0], limit) is requested again.
  void lose_of_eight(const std::set<uint32_t>& lost, uint32_t limit) {
    post(IBV_WR_RDMA_READ, 8 * 256);
    e.transmitted();
    e.now += milliseconds(1);
    for (uint32_t psn = 101; psn < 109; ++psn) {
      if (!lost.contains(psn)) answer(101, 109, psn, psn + 1);
    }
    e.wait_for_timer();
    const uint32_t from = *lost.begin();
    const auto packets = e.transmitted();
    ASSERT_EQ(psns(packets), std::vector<uint32_t>{from});
    EXPECT_EQ(packets[0].headers.dma_length, (limit - from) * 256);
    answer(from, limit, from, limit);
    expect_sent(2);
  }
};

TEST_F(ReadRepair, OfARequestWaitsForNoWindow) {
  for (int i = 0; i < 6; ++i) post(IBV_WR_RDMA_READ, 64 * 256);
  const std::vector<uint32_t> asked = psns(e.transmitted());
  ASSERT_GT(asked.size(), 2u);
  // Shrinks the window until the READs that wait for the first one fill it.
  for (int i = 0; i < 40; ++i) {
    e.now += milliseconds(1);
    notice();
  }
  tell(101, {{asked[1], asked.back() + 64}});
  e.wait_for_timer();
  EXPECT_THAT(sent_again(), Contains(101));
}

// After going back, the window is full with the first READ, which is lost as well. There is no timeout.
TEST_F(ReadRepair, IsTriedAgainWithoutATimeoutBehindAFullWindow) {
  e.attributes().timeout = 0;
  for (int i = 0; i < 6; ++i) post(IBV_WR_RDMA_READ, 64 * 256);
  ASSERT_GT(e.transmitted().size(), 2u);
  for (int i = 0; i < 40; ++i) {
    e.now += milliseconds(1);
    notice();
  }
  nak(101, NakCode::kSequenceError);
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(sent_again(), Contains(101));
    e.wait_for_timer();
  }
}

TEST_F(ReadRepair, AsksOneThatDoesNotTellForAllFromTheFirstGapOn) {
  lose_of_eight({103, 105}, 109);
}

TEST_F(ReadRepair, AsksForTheMissingPartOfAnAnswer) {
  tell(101, {});
  lose_of_eight({103, 104}, 105);
}

TEST_F(ReadRepair, IsMorePatientWhereWhatItAskedForAgainHadOnlyBeenLate) {
  tell(101, {});
  uint32_t first = 101;
  // Posts a READ of eight packets whose third is late. Returns the time until it was requested again.
  const auto read_with_gap = [&] {
    post(IBV_WR_RDMA_READ, 8 * 256);
    e.transmitted();
    e.now += milliseconds(1);
    answer(first, first + 8, first, first + 2);
    answer(first, first + 8, first + 3, first + 8);
    const TimePoint since = e.now;
    while (sent_again().empty()) e.wait_for_timer();
    const Duration patience = e.now - since;
    e.now += milliseconds(1);  // late enough to be the repeated response
    answer(first, first + 8, first + 2, first + 3);
    answer(first + 2, first + 3, first + 2, first + 3);
    first += 8;
    return patience;
  };
  const Duration before = read_with_gap();
  EXPECT_GE(read_with_gap(), 2 * before);
}

TEST_F(ReadRepair, NamesNoRequestAgainThatIsAnswered) {
  const auto named = [&] {
    std::vector<uint32_t> all;
    for (const SentPacket& p : e.transmitted()) {
      if (p.headers.opcode != roce::kRepeatedReadsOpcode) continue;
      const RepeatedReads reads = RepeatedReads::read(p.payload);
      for (const RepeatedReads::Request& request : reads.all()) all.push_back(request.psn.value());
    }
    return all;
  };
  tell(101, {});
  lose_of_eight({103, 104}, 105);
  post(IBV_WR_RDMA_READ, 256);
  post(IBV_WR_RDMA_READ, 256);
  EXPECT_THAT(named(), ElementsAre(109, 110));
  answer(109, 110, 109, 110);
  answer(110, 111, 110, 111);
  post(IBV_WR_RDMA_READ, 256);
  EXPECT_THAT(named(), ElementsAre(111)) << "their PSNs are those of others some day";
}

TEST_F(ReadRepair, LeavesAPartAloneThatHasBegunToCome) {
  post(IBV_WR_RDMA_READ, 40 * 256);  // PSNs 101 to 140
  e.transmitted();
  e.now += milliseconds(1);
  answer(101, 141, 140, 141);
  e.wait_for_timer();
  EXPECT_THAT(psns(e.transmitted()), ElementsAre(101));
  // The response comes so slowly that it would count as lost by now.
  for (uint32_t psn = 101; psn < 140; ++psn) {
    e.now += milliseconds(2);
    answer(101, 140, psn, psn + 1);
    EXPECT_THAT(psns(e.transmitted()), ElementsAre()) << psn;
  }
  expect_sent(2);
  EXPECT_EQ(e.counter(kRetransmittedPackets), 1u);
}

TEST_F(ReadRepair, HearsFromTheAnswerThatTheRequestWasThere) {
  post(IBV_WR_RDMA_READ, 8 * 256);   // PSNs 101 to 108
  post(IBV_WR_RDMA_READ, 40 * 256);  // PSNs 109 to 148
  e.transmitted();
  tell(101, {{109, 149}});
  e.wait_for_timer();
  EXPECT_THAT(sent_again(), ElementsAre(101));
  e.now += milliseconds(1);
  answer(101, 109, 101, 102);
  // The rest of the response is slow, but not lost.
  for (uint32_t psn = 102; psn < 109; ++psn) {
    e.now += milliseconds(2);
    answer(101, 109, psn, psn + 1);
    EXPECT_THAT(sent_again(), Not(Contains(101)));
  }
  EXPECT_EQ(e.path_number(kPathLostPackets), 8u);
}

}  // namespace
}  // namespace verbena::transport
