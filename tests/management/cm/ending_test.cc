// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include <gtest/gtest.h>

#include "management/cm/parameters.h"
#include "management/cm/support/endpoint.h"

namespace verbena::cm {
namespace {

using std::chrono::minutes;

void expect_nothing_left(Pair& pair) {
  pair.pass(minutes(3));
  EXPECT_EQ(pair.a.manager.size(), 0u);
  EXPECT_EQ(pair.b.manager.size(), 0u);
  EXPECT_EQ(pair.a.manager.half_open() + pair.b.manager.half_open(), 0u);
  EXPECT_EQ(pair.a.manager.waiting() + pair.b.manager.waiting(), 0u);
  EXPECT_EQ(pair.a.manager.deadline(), kNever);
  EXPECT_EQ(pair.b.manager.deadline(), kNever);
}

TEST(Ending, ByDreqAndDrepLeadsBothSidesThroughTimeWait) {
  Pair pair;
  const auto ids = pair.connect();
  ASSERT_TRUE(pair.a.manager.disconnect(ids.a, {}, pair.now));
  EXPECT_EQ(pair.a.state(ids.a), State::kDreqSent);
  pair.carry();
  EXPECT_EQ(pair.b.last().heard, Heard::kDisconnectRequest);
  ASSERT_TRUE(pair.b.manager.confirm_disconnect(ids.b, {}, pair.now));
  pair.carry();
  EXPECT_EQ(pair.a.last().heard, Heard::kDisconnected);
  EXPECT_TRUE(pair.a.last().has_drep);
  EXPECT_EQ(pair.a.manager.deadline(), pair.now + time_of(19));
  pair.pass(time_of(19));
  EXPECT_EQ(pair.a.last().heard, Heard::kTimeWaitExit);
  EXPECT_EQ(pair.b.last().heard, Heard::kTimeWaitExit);
  EXPECT_EQ(pair.a.state(ids.a), State::kIdle);
  ASSERT_TRUE(pair.a.manager.destroy(ids.a, pair.now));
  ASSERT_TRUE(pair.b.manager.destroy(ids.b, pair.now));
  expect_nothing_left(pair);
}

TEST(Ending, OfBothSidesAtOnceIsHeardOnceByEach) {
  Pair pair;
  const auto ids = pair.connect();
  ASSERT_TRUE(pair.a.manager.disconnect(ids.a, {}, pair.now));
  ASSERT_TRUE(pair.b.manager.disconnect(ids.b, {}, pair.now));
  const size_t heard_a = pair.a.heard.size(), heard_b = pair.b.heard.size();
  pair.carry();
  ASSERT_EQ(pair.a.heard.size(), heard_a + 1);
  ASSERT_EQ(pair.b.heard.size(), heard_b + 1);
  EXPECT_EQ(pair.a.last().heard, Heard::kDisconnectRequest);
  EXPECT_EQ(pair.b.last().heard, Heard::kDisconnectRequest);
  EXPECT_EQ(pair.a.state(ids.a), State::kTimeWait);
  EXPECT_EQ(pair.b.state(ids.b), State::kTimeWait);
  EXPECT_EQ(pair.a.manager.confirm_disconnect(ids.a, {}, pair.now).error(), Error{EINVAL});
}

TEST(Ending, ByDestructionOfAnEstablishedConnectionIsADreqThatIsRepeated) {
  Pair pair;
  const auto ids = pair.connect();
  ASSERT_TRUE(pair.a.manager.destroy(ids.a, pair.now));
  EXPECT_EQ(pair.a.manager.destroy(ids.a, pair.now).error(), Error{ENOENT});
  pair.a.sent.clear();  // lost
  pair.pass(minutes(1));
  EXPECT_EQ(pair.b.last().heard, Heard::kDisconnectRequest);
  ASSERT_TRUE(pair.b.manager.destroy(ids.b, pair.now));
  const size_t heard = pair.a.heard.size();
  expect_nothing_left(pair);
  EXPECT_EQ(pair.a.heard.size(), heard);
}

TEST(Ending, OfAConnectionWhoseQpIsGoneTellsThePeerAndKeepsTheId) {
  Pair pair;
  const auto ids = pair.connect();
  ASSERT_TRUE(pair.a.manager.end(ids.a, pair.now));
  EXPECT_EQ(pair.a.state(ids.a), State::kDreqSent);
  pair.carry();
  EXPECT_EQ(pair.b.last().heard, Heard::kDisconnectRequest);
  ASSERT_TRUE(pair.b.manager.end(ids.b, pair.now));
  EXPECT_EQ(pair.b.state(ids.b), State::kTimeWait);
  pair.carry();
  EXPECT_EQ(pair.a.last().heard, Heard::kDisconnected);
  EXPECT_FALSE(pair.a.manager.next_qp_holder(0, 0));
}

TEST(Ending, OfAConnectionBeingSetUpWhoseQpIsGoneIsATimeoutRej) {
  HalfOpen pair;
  ASSERT_TRUE(pair.a.manager.end(pair.active, pair.now));
  EXPECT_EQ(pair.a.state(pair.active), State::kIdle);
  pair.carry();
  EXPECT_EQ(pair.b.last().heard, Heard::kRejected);
}

TEST(Ending, ByDestructionEndsAlsoWithoutAPeer) {
  Pair pair;
  const auto ids = pair.connect();
  ASSERT_TRUE(pair.a.manager.destroy(ids.a, pair.now));
  pair.pass_in_silence(minutes(3));
  EXPECT_EQ(pair.a.manager.size(), 0u);
}

TEST(Ending, OfAReqIsATimeoutRejByWhichThePeerKnowsIt) {
  HalfOpen pair;
  ASSERT_TRUE(pair.a.manager.destroy(pair.active, pair.now));
  EXPECT_EQ(pair.a.manager.size(), 0u);
  pair.carry();
  EXPECT_EQ(pair.b.last().heard, Heard::kRejected);
  EXPECT_EQ(pair.b.last().reason, static_cast<uint16_t>(RejReason::kTimeout));
  ASSERT_TRUE(pair.b.manager.destroy(pair.passive, pair.now));
  expect_nothing_left(pair);
}

TEST(Ending, OfAReceivedReqIsAConsumerReject) {
  HalfOpen pair;
  ASSERT_TRUE(pair.b.manager.destroy(pair.passive, pair.now));
  pair.carry();
  EXPECT_EQ(pair.a.last().heard, Heard::kRejected);
  EXPECT_EQ(pair.a.last().reason, static_cast<uint16_t>(RejReason::kConsumer));
  ASSERT_TRUE(pair.a.manager.destroy(pair.active, pair.now));
  expect_nothing_left(pair);
}

TEST(Ending, OfASentRepIsAConsumerReject) {
  HalfOpen pair;
  pair.reply();
  ASSERT_TRUE(pair.b.manager.destroy(pair.passive, pair.now));
  pair.carry();
  EXPECT_EQ(pair.a.last().heard, Heard::kRejected);
  EXPECT_EQ(pair.a.state(pair.active), State::kTimeWait);
  ASSERT_TRUE(pair.a.manager.destroy(pair.active, pair.now));
  expect_nothing_left(pair);
}

// The active side may take the connection for established and send nothing more.
TEST(Ending, OfASentRepRepeatsTheRej) {
  HalfOpen pair;
  pair.reply();
  ASSERT_TRUE(pair.a.manager.ready(pair.active, {}, pair.now));
  pair.a.sent.clear();  // the RTU is lost
  ASSERT_TRUE(pair.b.manager.destroy(pair.passive, pair.now));
  pair.b.sent.clear();  // and so is the REJ
  pair.pass(2 * time_of(19));
  EXPECT_EQ(pair.a.last().heard, Heard::kTimeWaitExit);
  EXPECT_EQ(pair.a.heard[pair.a.heard.size() - 2].heard, Heard::kRejected);
  EXPECT_EQ(pair.b.manager.counters().sent[static_cast<size_t>(MessageType::kRej)], 4u);
  EXPECT_EQ(pair.b.manager.size(), 0u);
}

TEST(Ending, OfAReceivedRepIsAConsumerReject) {
  HalfOpen pair;
  pair.reply();
  ASSERT_TRUE(pair.a.manager.destroy(pair.active, pair.now));
  const Rej rej = *decode<Rej>(pair.a.sent.front().mad.bytes);
  EXPECT_EQ(rej.rejected, Answered::kRep);
  pair.carry();
  EXPECT_EQ(pair.b.last().heard, Heard::kRejected);
  ASSERT_TRUE(pair.b.manager.destroy(pair.passive, pair.now));
  expect_nothing_left(pair);
}

TEST(Ending, OfAReceivedDreqIsADrep) {
  Pair pair;
  const auto ids = pair.connect();
  ASSERT_TRUE(pair.a.manager.disconnect(ids.a, {}, pair.now));
  pair.carry();
  ASSERT_TRUE(pair.b.manager.destroy(ids.b, pair.now));
  pair.carry();
  EXPECT_TRUE(pair.a.last().has_drep);
  ASSERT_TRUE(pair.a.manager.destroy(ids.a, pair.now));
  expect_nothing_left(pair);
}

TEST(Ending, ByRejCarriesReasonAndPrivateData) {
  HalfOpen pair;
  const std::byte data[2] = {std::byte{0xaa}, std::byte{0xbb}};
  RejectParameters why;
  why.reason = static_cast<uint16_t>(RejReason::kVendorOptionNotSupported);
  why.private_data = data;
  ASSERT_TRUE(pair.b.manager.reject(pair.passive, why, pair.now));
  pair.carry();
  EXPECT_EQ(pair.a.last().reason, 35);
  EXPECT_EQ(pair.a.last().private_data[1], 0xbb);
  EXPECT_EQ(pair.b.manager.reject(pair.passive, why, pair.now).error(), Error{EINVAL});
}

// A peer that got an MRA may know our ID, so the REJ names it. Linux: cm_format_rej().
TEST(Ending, ByRejTellsOurIdAfterAnMra) {
  HalfOpen pair;
  ASSERT_TRUE(pair.b.manager.delay(pair.passive, 20, Manager::MraTime::kNow, {}, pair.now));
  pair.carry();
  ASSERT_TRUE(pair.b.manager.reject(pair.passive, {}, pair.now));
  const Rej rej = *decode<Rej>(pair.b.sent.front().mad.bytes);
  EXPECT_EQ(rej.rejected, Answered::kReq);
  EXPECT_EQ(rej.local_id, pair.passive);
  pair.carry();
  EXPECT_EQ(pair.a.last().heard, Heard::kRejected);
}

TEST(Ending, ByDreqMayBeAnsweredByRej) {
  Pair pair;
  const auto ids = pair.connect();
  ASSERT_TRUE(pair.a.manager.disconnect(ids.a, {}, pair.now));
  pair.a.sent.clear();
  pair.a.receive({encode(Rej{.local_id = ids.b, .remote_id = ids.a, .reason = 6}, 1), pair.b.path_to(pair.a)},
                 pair.now);
  EXPECT_EQ(pair.a.last().heard, Heard::kDisconnected);
  EXPECT_EQ(pair.a.state(ids.a), State::kTimeWait);
}

// The DREQ of b arrives late; the DREQ of a has been answered meanwhile.
TEST(Ending, AnswersADreqThatIsLateFromTimeWait) {
  Pair pair;
  const auto ids = pair.connect();
  ASSERT_TRUE(pair.b.manager.disconnect(ids.b, {}, pair.now));
  const Datagram late = pair.b.take();
  ASSERT_TRUE(pair.a.manager.disconnect(ids.a, {}, pair.now));
  pair.carry();
  EXPECT_EQ(pair.a.state(ids.a), State::kTimeWait);
  pair.a.receive(late, pair.now);
  const Drep drep = pair.a.take_as<Drep>();
  EXPECT_EQ(drep.local_id, ids.a);
  EXPECT_EQ(drep.remote_id, ids.b);
}

TEST(Ending, OfARejectedRepIsRepeatedWhileThePeerRepeats) {
  HalfOpen pair;
  ASSERT_TRUE(pair.b.manager.reply(pair.passive, pair.b.reply_parameters(), pair.now));
  const Datagram rep = pair.b.take();
  pair.a.receive(rep, pair.now);
  ASSERT_TRUE(pair.a.manager.reject(pair.active, {}, pair.now));
  const Datagram rej = pair.a.take();
  pair.a.receive(rep, pair.now);
  EXPECT_EQ(pair.a.take().mad, rej.mad);
}

// A DREQ may overtake the RTU. Linux: cm_dreq_handler() accepts it in REP_SENT.
TEST(Ending, OvertakesTheRtu) {
  HalfOpen pair;
  pair.reply();
  ASSERT_TRUE(pair.a.manager.ready(pair.active, {}, pair.now));
  pair.a.sent.clear();
  ASSERT_TRUE(pair.a.manager.disconnect(pair.active, {}, pair.now));
  pair.carry();
  EXPECT_EQ(pair.b.last().heard, Heard::kDisconnectRequest);
  EXPECT_EQ(pair.b.manager.half_open(), 0u);
}

// The target of XRC belongs to its domain, not to the connection (Linux: cm_destroy_id()).
TEST(Ending, OfAnXrcTargetByDestructionIsSilent) {
  Pair pair;
  auto parameters = pair.a.parameters_to(pair.b);
  parameters.qp_type = QpType::kXrcInitiator;
  const LocalId active = *pair.a.manager.connect(parameters, 0, pair.now);
  pair.carry();
  const LocalId passive = pair.b.last().id;
  ASSERT_TRUE(pair.b.manager.reply(passive, pair.b.reply_parameters(), pair.now));
  pair.carry();
  ASSERT_TRUE(pair.a.manager.ready(active, {}, pair.now));
  pair.carry();
  ASSERT_TRUE(pair.b.manager.destroy(passive, pair.now));
  EXPECT_TRUE(pair.b.sent.empty());
  EXPECT_EQ(pair.b.manager.size(), 0u);
}

// A handler may destroy the connection that an event names.
TEST(Ending, MayBeginInsideAnEvent) {
  struct Impatient : Endpoint {
    using Endpoint::Endpoint;
    void react(const Event& event) override { ASSERT_TRUE(manager.destroy(event.id, TimePoint{})); }
  };
  Endpoint a(1);
  Impatient b(2);
  const auto exchange = [&] {
    while (!a.sent.empty() || !b.sent.empty()) {
      Endpoint& from = a.sent.empty() ? static_cast<Endpoint&>(b) : a;
      Endpoint& to = a.sent.empty() ? a : static_cast<Endpoint&>(b);
      const Datagram datagram = from.sent.front();
      from.sent.pop_front();
      to.receive(datagram, TimePoint{});
    }
  };
  ASSERT_TRUE(a.manager.connect(a.parameters_to(b), 0, TimePoint{}));
  exchange();
  EXPECT_EQ(a.last().heard, Heard::kRejected);
  ASSERT_TRUE(b.manager.connect(b.parameters_to(a), 0, TimePoint{}));
  exchange();
  ASSERT_TRUE(a.manager.reply(a.last().id, a.reply_parameters(), TimePoint{}));
  exchange();
  EXPECT_EQ(a.last().heard, Heard::kRejected);
  ASSERT_TRUE(b.manager.connect(b.parameters_to(a), 0, TimePoint{}));
  while (b.manager.deadline() != kNever) b.manager.on_timer(b.manager.deadline());
  EXPECT_EQ(b.last().heard, Heard::kUnreachable);
  EXPECT_EQ(b.manager.size(), 0u);
}

// A peer may leave each DREQ unanswered.
TEST(Ending, DestroyedConnectionsThatAwaitADrepAreLimitedForEachAccount) {
  ManagerConfig config;
  config.max_unanswered = 4;
  Pair pair(config);
  uint32_t qpn = 100;
  const auto end_one = [&](uint32_t account) {
    pair.b.admission = Admission::admit(77, account);
    const auto ids = pair.connect(qpn, qpn + 100);
    ++qpn;
    ASSERT_TRUE(pair.b.manager.destroy(ids.b, pair.now));
    EXPECT_EQ(pair.b.take().type(), MessageType::kDreq) << "each peer gets one";
  };
  for (int i = 0; i < 6; ++i) end_one(1000);
  EXPECT_EQ(pair.b.manager.size(), 2u);
  end_one(1001);
  EXPECT_EQ(pair.b.manager.size(), 3u);
  pair.pass_in_silence(std::chrono::hours(1));
  EXPECT_EQ(pair.b.manager.size(), 0u);
  end_one(1000);
  EXPECT_EQ(pair.b.manager.size(), 1u) << "there is room again";
}

TEST(TimeWait, IsLimitedAndTheOldestLeaveFirst) {
  ManagerConfig config;
  config.max_waiting = 2;
  Pair pair(config);
  std::vector<LocalId> owned;
  for (uint32_t i = 0; i < 4; ++i) {
    const auto ids = pair.connect(100 + i, 200 + i);
    owned.push_back(ids.a);
    ASSERT_TRUE(pair.a.manager.disconnect(ids.a, {}, pair.now));
    pair.carry();
    ASSERT_TRUE(pair.b.manager.destroy(ids.b, pair.now));
    pair.carry();
  }
  EXPECT_EQ(pair.a.manager.waiting(), 2u);
  EXPECT_EQ(pair.b.manager.waiting(), 2u);
  EXPECT_EQ(pair.b.manager.size(), 2u);
  EXPECT_EQ(pair.a.manager.counters().time_wait_cut_short, 2u);
  pair.a.manager.on_timer(pair.now);  // not before: the owner gets the event from the timer, as all events
  EXPECT_EQ(pair.a.state(owned[0]), State::kIdle);
  EXPECT_EQ(pair.a.state(owned[1]), State::kIdle);
  EXPECT_EQ(pair.a.state(owned[2]), State::kTimeWait);
}

TEST(StaleConnection, IsFoundByTheRemoteQpnAndEnds) {
  Pair pair;
  const auto ids = pair.connect(100, 200);
  ASSERT_TRUE(pair.a.manager.forget(ids.a));  // the host restarts, and its QPNs start over
  const auto again = pair.a.manager.connect(pair.a.parameters_to(pair.b, 100), 6, pair.now);
  pair.carry();
  EXPECT_EQ(pair.a.last().heard, Heard::kRejected);
  EXPECT_EQ(pair.a.last().id, *again);
  EXPECT_EQ(pair.a.last().reason, static_cast<uint16_t>(RejReason::kStaleConnection));
  EXPECT_EQ(pair.a.state(*again), State::kTimeWait);
  EXPECT_EQ(pair.b.manager.counters().stale_connections, 1u);
  // The old connection got a DREQ, whose peer no longer knew it.
  EXPECT_EQ(pair.b.last().heard, Heard::kDisconnected);
  EXPECT_EQ(pair.b.last().id, ids.b);
  ASSERT_TRUE(pair.a.manager.destroy(*again, pair.now));
  ASSERT_TRUE(pair.b.manager.destroy(ids.b, pair.now));
  const auto second = pair.connect(100, 200);
  EXPECT_EQ(pair.b.state(second.b), State::kEstablished);
}

TEST(StaleConnection, IsFoundByTheQpnOfARepToo) {
  Pair pair;
  const auto ids = pair.connect(100, 200);
  ASSERT_TRUE(pair.b.manager.forget(ids.b));
  ASSERT_TRUE(pair.a.manager.connect(pair.a.parameters_to(pair.b, 101), 6, pair.now));
  pair.carry();
  const LocalId passive = pair.b.last().id;
  ASSERT_TRUE(pair.b.manager.reply(passive, pair.b.reply_parameters(200), pair.now));
  pair.carry();
  EXPECT_EQ(pair.b.last().heard, Heard::kRejected);
  EXPECT_EQ(pair.b.last().reason, static_cast<uint16_t>(RejReason::kStaleConnection));
  EXPECT_EQ(pair.a.last().heard, Heard::kDisconnected);
  EXPECT_EQ(pair.a.last().id, ids.a);
}

// The stale connection's side holds the REP's connection in TIMEWAIT. A repetition of the REQ gets the
// reason.
TEST(StaleConnection, IsToldToTheReqToo) {
  Pair pair;
  const auto ids = pair.connect(100, 200);
  ASSERT_TRUE(pair.b.manager.forget(ids.b));
  const LocalId active = *pair.a.manager.connect(pair.a.parameters_to(pair.b, 101), 6, pair.now);
  const Datagram req = pair.a.sent.front();
  pair.carry();
  ASSERT_TRUE(pair.b.manager.reply(pair.b.last().id, pair.b.reply_parameters(200), pair.now));
  pair.carry();
  EXPECT_EQ(pair.a.state(active), State::kReqSent);
  pair.b.receive(req, pair.now);
  pair.carry();
  EXPECT_EQ(pair.a.last().heard, Heard::kRejected);
  EXPECT_EQ(pair.a.last().id, active);
  EXPECT_EQ(pair.a.last().reason, static_cast<uint16_t>(RejReason::kStaleConnection));
}

TEST(StaleConnection, IsNotOneThatIsBeingEnded) {
  Pair pair;
  const auto ids = pair.connect(100, 200);
  ASSERT_TRUE(pair.a.manager.destroy(ids.a, pair.now));
  pair.carry();  // b's owner has not answered the DREQ
  EXPECT_EQ(pair.b.state(ids.b), State::kDreqReceived);
  pair.connect(100, 201);
  EXPECT_EQ(pair.b.manager.counters().stale_connections, 0u);
}

TEST(StaleConnection, IsNotThatOfAnotherHost) {
  Pair pair;
  pair.connect(100, 200);
  Endpoint stranger(3, {}, 33);
  ASSERT_TRUE(stranger.manager.connect(stranger.parameters_to(pair.b, 100), 0, pair.now));
  pair.b.receive(stranger.take(), pair.now);
  EXPECT_EQ(pair.b.last().heard, Heard::kRequest);
  EXPECT_EQ(pair.b.manager.counters().stale_connections, 0u);
}

// A host connected to itself: both ends belong to one manager.
class Alone {
 public:
  Endpoint host{1};
  TimePoint now{std::chrono::hours(1)};

  void carry() {
    while (!host.sent.empty()) {
      const Datagram next = host.sent.front();
      host.sent.pop_front();
      host.receive(next, now);
    }
  }
  // Requests a connection and accepts it. Returns whether it is established.
  bool connect(uint32_t qpn, uint32_t answering_qpn) {
    const LocalId active = *host.manager.connect(host.parameters_to(host, qpn), 1, now);
    carry();
    if (host.last().heard != Heard::kRequest) return false;
    const LocalId passive = host.last().id;
    EXPECT_TRUE(host.manager.reply(passive, host.reply_parameters(answering_qpn), now));
    carry();
    if (host.last().heard != Heard::kReply) return false;
    EXPECT_TRUE(host.manager.ready(active, {}, now));
    carry();
    return host.state(active) == State::kEstablished && host.state(passive) == State::kEstablished;
  }
};

// Programs that connect without QPs, such as rdma-core's cmtime, invent QPNs. Two on one host may use the
// same.
TEST(StaleConnection, IsNotOneWhoseOtherEndHasTheSameQpn) {
  Alone alone;
  EXPECT_TRUE(alone.connect(1000, 1000));
  EXPECT_TRUE(alone.connect(1001, 1002));
  EXPECT_TRUE(alone.connect(1002, 1001));
  EXPECT_EQ(alone.host.manager.counters().stale_connections, 0u);
}

TEST(StaleConnection, IsFoundWhereAHostIsConnectedWithItself) {
  for (const auto& [asking, answering] : {std::pair(1000, 1001), std::pair(1002, 1000)}) {
    Alone alone;
    EXPECT_TRUE(alone.connect(1000, 1000));
    EXPECT_FALSE(alone.connect(asking, answering));
    EXPECT_EQ(alone.host.manager.counters().stale_connections, 1u);
  }
}

}  // namespace
}  // namespace verbena::cm
