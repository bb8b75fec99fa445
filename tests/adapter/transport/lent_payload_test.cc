// SPDX-License-Identifier: Apache-2.0
// Rendezvous: payloads that stay in the sender's memory until the receiver fetches them, where the route
// allows it.
#include <cstring>
#include <span>
#include <vector>

#include "adapter/transport/support/requester_test.h"
#include "adapter/transport/support/responder_test.h"

namespace verbena::transport {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;
using Op = roce::Operation;

constexpr uint32_t kMtu = 256;
constexpr uint32_t kLong = 1 << 16;
constexpr uint32_t kPackets = kLong / kMtu;

// ---- sending side

// A direct access whose peer fetches payloads if `is_best` is set.
class Lending final : public DirectAccess {
 public:
  bool lends() const override { return is_best; }
  bool is_best_for(const Run&) override { return false; }
  bool read(const PeerRange&, uint32_t, uint32_t, std::span<const ConstBytes>) override { return false; }
  bool write(const PeerRange&, uint32_t, uint32_t, std::span<const ConstBytes>) override { return false; }
  std::optional<uint64_t> change(const PeerRange&, const AtomicChange&) override { return std::nullopt; }

  bool is_best = true;
};

std::vector<uint32_t> counts(const std::vector<SentPacket>& packets) {
  std::vector<uint32_t> all;
  for (const SentPacket& p : packets) all.push_back(p.count);
  return all;
}
std::vector<bool> lent(const std::vector<SentPacket>& packets) {
  std::vector<bool> all;
  for (const SentPacket& p : packets) all.push_back(p.lent);
  return all;
}

class RequesterLending : public RequesterTest {
 protected:
  void tune(QpAttributes&) override {
    Route& route = e.routes.route;
    route.direct = &way;
    route.traits.lossless = true;
    route.traits.burst_bytes = 1 << 20;
    route.traits.burst_packets = 256;
    route.traits.joined_bytes = 4 * kMtu;
    route.traits.lent_bytes = 100 * kMtu;
    route.traits.lent_packets = 127;
  }
  static uint32_t last_psn_of(const std::vector<SentPacket>& packets) {
    return packets.back().psn() + packets.back().count - 1;
  }
  // Acknowledges everything that was sent.
  void arrive(const std::vector<SentPacket>& packets) { acknowledge(last_psn_of(packets)); }

  Lending way;
};

TEST_F(RequesterLending, LendsALongMessageButItsLastPacket) {
  post(IBV_WR_SEND, kLong);
  const auto packets = e.transmitted();
  EXPECT_THAT(operations(packets),
              ElementsAre(Op::kSendFirst, Op::kSendMiddle, Op::kSendMiddle, Op::kSendLast));
  EXPECT_THAT(counts(packets), ElementsAre(100, 100, kPackets - 201, 1));
  EXPECT_THAT(lent(packets), ElementsAre(true, true, true, false));
  EXPECT_THAT(psns(packets), ElementsAre(100, 200, 300, 100 + kPackets - 1));
  EXPECT_EQ(packets[1].payload.size(), 100 * kMtu);
  EXPECT_EQ(std::memcmp(packets[1].payload.data(), &local.bytes()[100 * kMtu], 100 * kMtu), 0);
  EXPECT_EQ(e.counter(kSentPackets), kPackets) << "as on a network";
  expect_none_sent();
  arrive(packets);
  expect_sent(1);
}

TEST_F(RequesterLending, LendsWrites) {
  post(IBV_WR_RDMA_WRITE, kLong);
  const auto packets = e.transmitted();
  EXPECT_EQ(packets.front().operation(), Op::kWriteFirst);
  EXPECT_EQ(packets.front().headers.dma_length, kLong);
  EXPECT_THAT(lent(packets), ElementsAre(true, true, true, false));
}

// The message has more packets than one rendezvous packet may stand for.
TEST_F(RequesterLending, LendsNoMorePacketsAtOnceThanTheRouteTakes) {
  e.routes.route.traits.lent_packets = 60;
  e.qp->enter(IBV_QPS_RESET);
  e.bring_up();
  post(IBV_WR_SEND, kLong);
  EXPECT_THAT(counts(e.transmitted()), ElementsAre(60, 60, 60, 60, 15, 1));
}

TEST_F(RequesterLending, LendsNothingOfAShortMessage) {
  post(IBV_WR_SEND, kLong - 1);
  EXPECT_THAT(lent(e.transmitted()), Each(false));
}

TEST_F(RequesterLending, LendsNothingWhileThatIsNotTheBestWay) {
  way.is_best = false;
  post(IBV_WR_SEND, kLong);
  const auto packets = e.transmitted();
  EXPECT_THAT(lent(packets), Each(false));
  EXPECT_EQ(packets.size(), kPackets / 4);
  arrive(packets);
  way.is_best = true;
  post(IBV_WR_SEND, kLong);
  EXPECT_TRUE(e.transmitted().front().lent);
}

TEST_F(RequesterLending, CopiesWhatThePeerHasNotFetchedAndLendsItNothingMore) {
  post(IBV_WR_SEND, kLong);
  e.transmitted();
  nak(200, NakCode::kSequenceError);
  std::vector<SentPacket> packets;
  for (auto more = e.transmitted(); !more.empty(); more = e.transmitted()) {
    packets.insert(packets.end(), more.begin(), more.end());
    arrive(packets);
  }
  EXPECT_THAT(lent(packets), Each(false));
  EXPECT_EQ(packets.front().psn(), 200u);
  expect_sent(1);
  post(IBV_WR_SEND, kLong);
  EXPECT_THAT(lent(e.transmitted()), Each(false));
}

TEST_F(RequesterLending, CopiesWhatIsSentAgainToOneWhoWasNotReady) {
  post(IBV_WR_SEND, kLong);
  e.transmitted();
  rnr(100, 1);
  e.wait_for_timer();
  const auto packets = e.transmitted();
  EXPECT_THAT(lent(packets), Each(false));
  arrive(packets);
  post(IBV_WR_SEND, kLong);
  EXPECT_TRUE(e.transmitted().front().lent) << "all its fetches were used";
}

TEST_F(RequesterLending, LendsAgainAfterANewConnection) {
  post(IBV_WR_SEND, kLong);
  e.transmitted();
  nak(100, NakCode::kSequenceError);
  e.qp->enter(IBV_QPS_RESET);
  e.bring_up();
  post(IBV_WR_SEND, kLong);
  EXPECT_TRUE(e.transmitted().front().lent);
}

TEST_F(RequesterLending, LendsOnlyWhatItsKeyAllows) {
  post_with_key(IBV_WR_SEND, kLong, 0xbad);
  EXPECT_THAT(e.transmitted(), IsEmpty());
  expect_sent(1, IBV_WC_LOC_PROT_ERR);
}

// ---- receiving side

// A payload in the sender's memory that can be fetched or not.
class Lent final : public LentPayload {
 public:
  explicit Lent(ConstBytes data) : data_(data) {}
  uint32_t bytes() const override { return static_cast<uint32_t>(data_.size()); }
  bool fetch(const Connection& connection, std::span<const ConstBytes> to) override {
    ++asked;
    asked_by = connection;
    size_t offset = 0;
    for (const ConstBytes piece : to) {
      if (!is_there) break;
      std::memcpy(const_cast<std::byte*>(piece.data()), &data_[offset], piece.size());
      offset += piece.size();
    }
    EXPECT_TRUE(!is_there || offset == data_.size());
    return is_there;
  }

  bool is_there = true;
  int asked = 0;
  Connection asked_by{};

 private:
  const ConstBytes data_;
};

class Fetching : public ResponderTest {
 protected:
  void tune(QpAttributes&) override { e.routes.route.traits.lossless = true; }
  void receive(const roce::Headers& headers, uint32_t count, Lent& lent) {
    const roce::Packet packet{headers, {}, count};
    const roce::Path path = path_between(e.attributes().path.destination, e.attributes().path.source);
    EXPECT_EQ(e.qp->on_packet({packet, path, 0, nullptr, {}, &lent}, e.now), Verdict::kAccepted);
  }
  void send_lent(Operation operation, uint32_t psn, uint32_t count, Lent& lent) {
    receive(request(operation, psn, {}, false), count, lent);
  }
  void write_lent(Operation operation, uint32_t psn, uint32_t count, Lent& lent, uint32_t length = 0) {
    roce::Headers headers = request(operation, psn, {}, false);
    headers.address = target.address();
    headers.rkey = target.key();
    headers.dma_length = length;
    receive(headers, count, lent);
  }
  bool has(Buffer& buffer, size_t bytes) const {
    return std::memcmp(buffer.data(), source.data(), bytes) == 0;
  }
};

TEST_F(Fetching, ASendIsFetchedIntoItsReceiveRequest) {
  post_list(std::array{inbox.sge(0, 700), inbox.sge(700, 0), inbox.sge(700, 4096)});
  Lent first(data(4 * kMtu)), middle(data(2 * kMtu, 4 * kMtu));
  send_lent(Op::kSendFirst, 200, 4, first);
  send_lent(Op::kSendMiddle, 204, 2, middle);
  expect_none_received();
  send(Op::kSendLast, 206, data(10, 6 * kMtu));
  expect_received(1, 6 * kMtu + 10);
  EXPECT_TRUE(has(inbox, 6 * kMtu + 10));
  expect_ack(206, 1);
  EXPECT_EQ(e.counter(kReceivedBytes), 6 * kMtu + 10);
}

TEST_F(Fetching, AWriteIsFetchedIntoPlace) {
  Lent first(data(4 * kMtu)), middle(data(2 * kMtu, 4 * kMtu));
  write_lent(Op::kWriteFirst, 200, 4, first, 6 * kMtu + 10);
  write_lent(Op::kWriteMiddle, 204, 2, middle);
  write(Op::kWriteLast, 206, data(10, 6 * kMtu));
  EXPECT_TRUE(has(target, 6 * kMtu + 10));
  expect_ack(206, 1);
}

TEST_F(Fetching, SaysWhoseItIsAndWhoAsks) {
  post();
  Lent first(data(4 * kMtu));
  send_lent(Op::kSendFirst, 200, 4, first);
  EXPECT_EQ(first.asked_by.from, roce::Qpn(0x22));
  EXPECT_EQ(first.asked_by.to, roce::Qpn(0x11));
  EXPECT_EQ(first.asked_by.first_psn, roce::Psn(200));
}

TEST_F(Fetching, AsksAgainForWhatCannotBeFetched) {
  post();
  Lent first(data(4 * kMtu)), middle(data(kMtu, 4 * kMtu));
  first.is_there = false;
  send_lent(Op::kSendFirst, 200, 4, first);
  send_lent(Op::kSendMiddle, 204, 1, middle);
  send(Op::kSendLast, 205, data(10, 5 * kMtu));
  EXPECT_EQ(middle.asked, 0);
  expect_nak(200, NakCode::kSequenceError, 0);
  expect_none_received();
  EXPECT_EQ(e.qp->state(), IBV_QPS_RTR);

  EXPECT_EQ(e.receive(request(Op::kSendFirst, 200, {}, false), data(4 * kMtu), 4), Verdict::kAccepted);
  EXPECT_EQ(e.receive(request(Op::kSendMiddle, 204, {}, false), data(kMtu, 4 * kMtu), 1), Verdict::kAccepted);
  send(Op::kSendLast, 205, data(10, 5 * kMtu));
  expect_received(1, 5 * kMtu + 10);
  EXPECT_TRUE(has(inbox, 5 * kMtu + 10));
}

TEST_F(Fetching, AsksAgainInTheMidstOfAMessage) {
  post();
  Lent first(data(4 * kMtu)), middle(data(kMtu, 4 * kMtu));
  middle.is_there = false;
  send_lent(Op::kSendFirst, 200, 4, first);
  send_lent(Op::kSendMiddle, 204, 1, middle);
  expect_nak(204, NakCode::kSequenceError, 0);
  EXPECT_EQ(e.receive(request(Op::kSendLast, 204, {}), data(kMtu, 4 * kMtu), 1), Verdict::kAccepted);
  expect_received(1, 5 * kMtu);
  EXPECT_TRUE(has(inbox, 5 * kMtu));
}

TEST_F(Fetching, AsksAgainForAWriteThatCannotBeFetched) {
  Lent first(data(4 * kMtu)), middle(data(kMtu, 4 * kMtu));
  first.is_there = middle.is_there = false;
  write_lent(Op::kWriteFirst, 200, 4, first, 5 * kMtu + 10);
  expect_nak(200, NakCode::kSequenceError, 0);
  first.is_there = true;
  write_lent(Op::kWriteFirst, 200, 4, first, 5 * kMtu + 10);
  write_lent(Op::kWriteMiddle, 204, 1, middle);
  expect_nak(204, NakCode::kSequenceError, 0);
  middle.is_there = true;
  write_lent(Op::kWriteMiddle, 204, 1, middle);
  write(Op::kWriteLast, 205, data(10, 5 * kMtu));
  EXPECT_TRUE(has(target, 5 * kMtu + 10));
  expect_ack(205, 1);
}

TEST_F(Fetching, WhatCameBeforeIsNotFetchedAgain) {
  post();
  Lent first(data(4 * kMtu)), again(data(4 * kMtu, 1));
  send_lent(Op::kSendFirst, 200, 4, first);
  send_lent(Op::kSendFirst, 200, 4, again);
  EXPECT_EQ(again.asked, 0);
  expect_ack(203, 0);
  EXPECT_TRUE(has(inbox, 4 * kMtu));
}

TEST_F(Fetching, WhatComesTooEarlyIsNotFetched) {
  post();
  Lent early(data(4 * kMtu));
  send_lent(Op::kSendFirst, 201, 4, early);
  EXPECT_EQ(early.asked, 0);
  expect_nak(200, NakCode::kSequenceError, 0);
}

// The route to the peer may have changed after the packet was put into a ring.
class FetchingFromALane : public Fetching {
 protected:
  void tune(QpAttributes&) override {}  // the new route keeps early packets
};

TEST_F(FetchingFromALane, WhatComesTooEarlyIsNotKept) {
  post();
  Lent early(data(4 * kMtu, kMtu));
  send_lent(Op::kSendMiddle, 201, 4, early);
  send(Op::kSendFirst, 200, data(kMtu));
  EXPECT_EQ(e.qp->state(), IBV_QPS_RTR);
  EXPECT_EQ(e.receive(request(Op::kSendMiddle, 201, {}, false), data(4 * kMtu, kMtu), 4), Verdict::kAccepted);
  send(Op::kSendLast, 205, data(10, 5 * kMtu));
  expect_received(1, 5 * kMtu + 10);
  EXPECT_TRUE(has(inbox, 5 * kMtu + 10));
}

TEST_F(Fetching, NothingIsFetchedWithoutAReceiveRequest) {
  Lent first(data(4 * kMtu));
  send_lent(Op::kSendFirst, 200, 4, first);
  EXPECT_EQ(first.asked, 0);
  e.transmitted();
  e.wait_for_timer();
  expect_acknowledge(200, roce::rnr_syndrome(12), 0);
}

TEST_F(Fetching, NothingIsFetchedThatDoesNotFit) {
  post(4 * kMtu - 1);
  Lent first(data(4 * kMtu));
  send_lent(Op::kSendFirst, 200, 4, first);
  EXPECT_EQ(first.asked, 0);
  expect_nak(200, NakCode::kInvalidRequest, 0);
  expect_received(1, 0, IBV_WC_LOC_LEN_ERR);
}

TEST_F(Fetching, NothingIsFetchedIntoWhatIsNobodys) {
  ibv_sge sge = inbox.sge(0, 4096);
  sge.lkey ^= 0x100;
  post_list({&sge, 1});
  Lent first(data(4 * kMtu));
  send_lent(Op::kSendFirst, 200, 4, first);
  EXPECT_EQ(first.asked, 0);
  expect_nak(200, NakCode::kRemoteOperational, 0);
  expect_received(1, 0, IBV_WC_LOC_PROT_ERR);
}

TEST_F(Fetching, NothingIsFetchedWhereThePeerMayNotWrite) {
  Lent first(data(4 * kMtu));
  roce::Headers headers = request(Op::kWriteFirst, 200, {}, false);
  headers.address = target.address();
  headers.rkey = target.key();
  headers.dma_length = (1 << 16) + 1;
  receive(headers, 4, first);
  EXPECT_EQ(first.asked, 0);
  expect_nak(200, NakCode::kRemoteAccess, 0);
}

TEST_F(Fetching, WhatIsNotWholePacketsIsRefused) {
  post();
  Lent first(data(4 * kMtu - 1));
  send_lent(Op::kSendFirst, 200, 4, first);
  EXPECT_EQ(first.asked, 0);
  expect_nak(200, NakCode::kInvalidRequest, 0);
}

}  // namespace
}  // namespace verbena::transport
