// SPDX-License-Identifier: Apache-2.0
// Lists of recent READ requests that are sent along with new ones: a lost READ request would hold up all that
// follow.
#include "adapter/transport/control_packets.h"
#include "adapter/transport/support/requester_repair.h"
#include "adapter/transport/support/responder_test.h"

namespace verbena::transport {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;

std::vector<uint32_t> psns_in(ConstBytes payload) {
  std::vector<uint32_t> all;
  const RepeatedReads reads = RepeatedReads::read(payload);
  for (const auto& request : reads.all()) all.push_back(request.psn.value());
  return all;
}

TEST(RepeatedReads, AreTheLatest) {
  RepeatedReads reads;
  for (uint32_t i = 0; i < RepeatedReads::kMax + 2; ++i)
    reads.add({roce::Psn(100 + i), 0x1000 + i, 0x50, 7 * i});
  std::array<std::byte, RepeatedReads::kMaxBytes> space;
  const uint32_t bytes = reads.write(space);
  const RepeatedReads read = RepeatedReads::read({space.data(), bytes});
  ASSERT_EQ(read.count, RepeatedReads::kMax);
  for (uint32_t i = 0; i < read.count; ++i) {
    EXPECT_EQ(read.requests[i].psn, roce::Psn(102 + i));
    EXPECT_EQ(read.requests[i].address, 0x1002 + i);
    EXPECT_EQ(read.requests[i].rkey, 0x50u);
    EXPECT_EQ(read.requests[i].bytes, 7 * (i + 2));
  }
}

TEST(RepeatedReads, OfABrokenWordAreThoseThatAreWhole) {
  const std::vector<std::byte> bytes(10 * RepeatedReads::kRequestBytes, std::byte{0xff});
  const auto of = [&](size_t size) { return RepeatedReads::read({bytes.data(), size}).count; };
  EXPECT_EQ(of(0), 0u);
  EXPECT_EQ(of(19), 0u);
  EXPECT_EQ(of(41), 2u);
  EXPECT_EQ(of(200), RepeatedReads::kMax);
}

class ReadsNamedAgain : public RequesterRepair {
 protected:
  void tune(QpAttributes& attributes) override { attributes.max_rd_atomic = 64; }

  // Posts `reads` READs of one packet each. Returns the PSNs in each list that is sent.
  std::vector<std::vector<uint32_t>> words_of(int reads) {
    for (int i = 0; i < reads; ++i) post(IBV_WR_RDMA_READ, 256);
    std::vector<std::vector<uint32_t>> words;
    for (const SentPacket& p : e.transmitted()) {
      if (p.headers.opcode == roce::kRepeatedReadsOpcode) words.push_back(psns_in(p.payload));
    }
    return words;
  }
  // Posts two READs, PSNs 101 and 102, and loses the answer to the first.
  void lose_one() {
    words_of(2);
    e.now += milliseconds(1);
    respond(roce::Operation::kReadResponseOnly, 102, std::vector<std::byte>(256));
    e.wait_for_timer();
    ASSERT_EQ(psns(e.transmitted()), std::vector<uint32_t>{101});
    respond(roce::Operation::kReadResponseOnly, 101, std::vector<std::byte>(256));
    expect_sent(2);
  }
};

TEST_F(ReadsNamedAgain, AreEachInTwoWords) {
  tell(101, {});
  e.transmitted();
  lose_one();
  EXPECT_THAT(words_of(4), ElementsAre(ElementsAre(103, 104), ElementsAre(103, 104, 105, 106)));
}

TEST_F(ReadsNamedAgain, AreTheLastOnesAtOnce) {
  tell(101, {});
  e.transmitted();
  lose_one();
  EXPECT_THAT(words_of(1), ElementsAre(ElementsAre(103)));
}

TEST_F(ReadsNamedAgain, AreNoneWhileNothingIsLost) {
  tell(101, {});
  e.transmitted();
  EXPECT_THAT(words_of(4), ElementsAre());
}

TEST_F(ReadsNamedAgain, AreNoneToAPeerThatDoesNotTell) {
  lose_one();
  EXPECT_THAT(words_of(4), ElementsAre());
}

class ReadsByTheirWord : public ResponderTest {
 protected:
  using Request = RepeatedReads::Request;
  Request request(uint32_t psn, uint32_t bytes = 256) {
    return {roce::Psn(psn), target.address(), target.key(), bytes};
  }
  void name(std::initializer_list<Request> requests, roce::Psn psn = roce::Psn(200)) {
    RepeatedReads reads;
    for (const Request& r : requests) reads.add(r);
    std::array<std::byte, RepeatedReads::kMaxBytes> space;
    const uint32_t bytes = reads.write(space);
    roce::Headers headers;
    headers.opcode = roce::kRepeatedReadsOpcode;
    headers.destination = roce::Qpn(0x11);
    headers.psn = psn - Sack::kPast;
    e.receive(headers, {space.data(), bytes});
  }
};

TEST_F(ReadsByTheirWord, AreAnsweredAsIfTheyHadCome) {
  read(201, 0, 256);  // 200 was lost
  answers();
  name({request(200), request(201)});
  EXPECT_THAT(psns(answers()), ElementsAre(200, 201));
}

TEST_F(ReadsByTheirWord, AreNotAnsweredAgain) {
  read(200, 0, 256);
  answers();
  name({request(200)});
  EXPECT_THAT(psns(answers()), ElementsAre());
}

TEST_F(ReadsByTheirWord, AreKeptWhereOneBeforeThemIsMissing) {
  name({request(201)});
  answers();
  read(200, 0, 256);
  EXPECT_THAT(psns(answers()), ElementsAre(200, 201));
}

// The list arrives before the READ request that it repeats.
TEST_F(ReadsByTheirWord, AskForNothingWhenTheyComeLater) {
  name({request(200, 500)});
  EXPECT_THAT(psns(answers()), ElementsAre(200, 201));
  read(200, 0, 500);
  EXPECT_THAT(psns(answers()), ElementsAre()) << "this one had been late";
  read(200, 0, 500);
  EXPECT_THAT(psns(answers()), ElementsAre(200, 201)) << "and this one is in earnest";
}

TEST_F(ReadsByTheirWord, AreTakenFromWhoKnowsWhereItIs) {
  for (const uint32_t psn : {201u, 0x800000u}) {
    name({request(200)}, roce::Psn(psn));
    EXPECT_THAT(psns(answers()), ElementsAre()) << psn;
  }
  EXPECT_EQ(e.qp->next_receive_psn(), roce::Psn(200));
}

TEST_F(ReadsByTheirWord, AreRefusedAsAnyOther) {
  name({{roce::Psn(200), target.address(), target.key() + 1, 256}});
  expect_nak(200, NakCode::kRemoteAccess, 0);
  EXPECT_EQ(e.qp->state(), IBV_QPS_ERR);
}

}  // namespace
}  // namespace verbena::transport
