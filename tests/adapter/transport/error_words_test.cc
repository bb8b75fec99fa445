// SPDX-License-Identifier: Apache-2.0
// The texts of a queue pair's errors: in the log, and in the reason that a peer of the same user gets.
#include "adapter/transport/error_words.h"

#include "adapter/transport/support/responder_test.h"

namespace verbena::transport {
namespace {

using testing::HasSubstr;
using testing::Not;
using Op = roce::Operation;

// Direct access to a process of our user, which fails for every request.
class OurUser final : public DirectAccess {
 public:
  bool is_of_our_user() const override { return ours; }
  bool is_best_for(const Run&) override { return false; }
  bool read(const PeerRange&, uint32_t, uint32_t, std::span<const ConstBytes>) override { return false; }
  bool write(const PeerRange&, uint32_t, uint32_t, std::span<const ConstBytes>) override { return false; }
  std::optional<uint64_t> change(const PeerRange&, const AtomicChange&) override { return std::nullopt; }

  bool ours = true;
};

class RefusalWords : public ResponderTest {
 protected:
  void SetUp() override {
    e.routes.route.direct = &access;
    ResponderTest::SetUp();
  }
  // Returns the refusal reason that the peer gets before the NAK; empty if none.
  std::string told() {
    const auto packets = e.transmitted();
    EXPECT_FALSE(packets.empty());
    if (packets.empty()) return "";
    EXPECT_EQ(packets.back().headers.operation(), Op::kAcknowledge);
    if (packets.size() == 1) return "";
    EXPECT_EQ(packets.size(), 2u);
    EXPECT_EQ(packets[0].headers.opcode, roce::kRefusalOpcode);
    EXPECT_EQ(packets[0].headers.pad, roce::padding_of(static_cast<uint32_t>(packets[0].payload.size())));
    return {reinterpret_cast<const char*>(packets[0].payload.data()), packets[0].payload.size()};
  }
  void write_to(uint64_t address, uint32_t rkey) { write(Op::kWriteOnly, 200, data(8), address, 8, rkey); }

  OurUser access;
};

TEST_F(RefusalWords, NameAKeyThatNothingHas) {
  write_to(target.address(), 0xdeadbeef);
  EXPECT_THAT(told(), HasSubstr("no region or memory window has key 0xdeadbeef"));
}

TEST_F(RefusalWords, NameTheRangeThatIsLeft) {
  write_to(target.address() + target.size() - 4, target.key());
  EXPECT_THAT(told(), HasSubstr("is not within"));
}

TEST_F(RefusalWords, NameTheRightThatIsMissing) {
  const Buffer& only_read = e.memory.add(64, IBV_ACCESS_REMOTE_READ);
  write_to(only_read.address(), only_read.key());
  EXPECT_THAT(told(), HasSubstr("without IBV_ACCESS_REMOTE_WRITE"));
}

TEST_F(RefusalWords, NameTheProcess) {
  write_to(target.address(), 0xdeadbeef);
  EXPECT_THAT(told(), HasSubstr("process " + std::to_string(::getpid())));
}

TEST_F(RefusalWords, NameWhatTheQueuePairDoesNotTake) {
  e.attributes().access = IBV_ACCESS_REMOTE_READ;
  write_to(target.address(), target.key());
  EXPECT_THAT(told(), HasSubstr("qp_access_flags do not have IBV_ACCESS_REMOTE_WRITE"));
}

TEST_F(RefusalWords, SayThatAMessageWasTooLong) {
  post(16);
  send(Op::kSendOnly, 200, data(32));
  EXPECT_THAT(told(), HasSubstr("message of 32 bytes, receive buffer of 16"));
}

TEST_F(RefusalWords, SayThatALongMessageWasTooLong) {
  post(16);
  send(Op::kSendFirst, 200, data(256));
  EXPECT_THAT(told(), HasSubstr("message of 256 bytes or more, receive buffer of 16"));
}

TEST_F(RefusalWords, SayThatThePathMtusDiffer) {
  post();
  send(Op::kSendFirst, 200, data(1024));
  EXPECT_THAT(told(), HasSubstr("path MTU mismatch: local 256, packet has 1024"));
}

TEST_F(RefusalWords, AreForNobodyElse) {
  access.ours = false;
  write_to(target.address(), 0xdeadbeef);
  EXPECT_EQ(told(), "") << "which keys there are is our user's affair";
}

TEST_F(RefusalWords, AreNotSaidOfWhatIsNoError) {
  send(Op::kSendOnly, 200, data(32));  // no receive is posted
  EXPECT_EQ(told(), "");
}

class FailureWords : public RefusalWords {
 protected:
  static constexpr ibv_wc_status kRemoteAccess = IBV_WC_REM_ACCESS_ERR;

  std::string failed(ibv_wc_status status, const ibv_sge& sge, const std::string& peer_words = "") {
    ibv_sge list = sge;
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_RDMA_READ;
    wr.sg_list = &list;
    wr.num_sge = 1;
    wr.wr.rdma.remote_addr = 0x10000;
    wr.wr.rdma.rkey = 0xabcd;
    e.qp->enter(IBV_QPS_RTS);
    EXPECT_TRUE(post_send(*e.qp, wr));
    return what_failed(*e.qp, e.qp->send_queue().at(e.qp->send_queue().consumed()), status, peer_words);
  }
};

TEST_F(FailureWords, NameTheRequestAndTheStatus) {
  const std::string text = failed(kRemoteAccess, target.sge(0, 64));
  EXPECT_THAT(text, HasSubstr("QP 0x000011: RDMA READ of 64 bytes, address 0x10000, key 0xabcd, failed, "
                              "remote access error (10): "));
  EXPECT_THAT(text, HasSubstr("key is of no region"));
}

TEST_F(FailureWords, AreThePeersWhereItHasSaidSome) {
  const std::string text = failed(kRemoteAccess, target.sge(0, 64), "no such key");
  EXPECT_THAT(text, HasSubstr("QP 0x000022 at 10.0.0.2 says: no such key"));
}

TEST_F(FailureWords, AreNotThePeersWhereItCouldNotKnow) {
  EXPECT_THAT(failed(IBV_WC_RETRY_EXC_ERR, target.sge(0, 64), "no such key"), Not(HasSubstr("no such key")));
}

TEST_F(FailureWords, NameTheLocalKeyThatIsAtFault) {
  ibv_sge sge = target.sge(0, 64);
  sge.lkey = 0xbad;
  EXPECT_THAT(failed(IBV_WC_LOC_PROT_ERR, sge), HasSubstr("no region has the local key 0xbad"));
}

TEST_F(FailureWords, SayWhoDidNotAnswer) {
  EXPECT_THAT(failed(IBV_WC_RETRY_EXC_ERR, target.sge(0, 8)), HasSubstr("10.0.0.2 has not answered 8 tries"));
}

TEST_F(FailureWords, NameTheObstacleThatThisHostKnowsOf) {
  e.routes.known_obstacle = "no route to 10.0.0.2";
  const std::string text = failed(IBV_WC_RETRY_EXC_ERR, target.sge(0, 8));
  EXPECT_THAT(text, HasSubstr("10.0.0.2 has not answered 8 tries of 67 ms or more: no route to 10.0.0.2"));
  EXPECT_THAT(text, Not(HasSubstr("firewall"))) << "no guesses beside what is known";
}

TEST_F(FailureWords, SayWhichPeerHadNoReceivePosted) {
  e.attributes().rnr_retry = 0;
  EXPECT_THAT(
      failed(IBV_WC_RNR_RETRY_EXC_ERR, target.sge(0, 8)),
      HasSubstr("RNR retries exhausted (rnr_retry 0): peer QP 0x000022 at 10.0.0.2 had no receive posted"));
}

TEST_F(FailureWords, SayWhatAReceiveRequestLacked) {
  ibv_wc wc{};
  wc.status = IBV_WC_LOC_LEN_ERR;
  wc.wr_id = 0x77;
  EXPECT_THAT(what_failed(*e.qp, wc),
              HasSubstr("wr_id 0x77 failed, local length error (1): the message is longer"));
}

}  // namespace
}  // namespace verbena::transport
