// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "base/random.h"
#include "management/cm/support/endpoint.h"

namespace verbena::cm {
namespace {

// A pair of hosts and a third one that sends forged messages.
struct Attack : Pair {
  Endpoint stranger{9, {}, 99};

  template <class Message>
  void forge(const Message& message, Endpoint& at, const Endpoint& as) {
    at.receive({encode(message, 1), as.path_to(at)}, now);
  }
  Req req(uint32_t id, uint32_t qpn) const {
    Req req;
    req.local_id = id;
    req.local_qpn = qpn;
    req.path_mtu = 3;
    req.primary.local_gid = address(9);
    req.primary.remote_gid = address(2);
    req.primary.local_ack_timeout = 19;
    req.local_response_timeout = 20;
    return req;
  }
};

TEST(HostileDatagram, IsDroppedAndCountedByReason) {
  Attack attack;
  Manager& manager = attack.b.manager;
  Arrival arrival;
  arrival.path = attack.stranger.path_to(attack.b);
  Mad mad = encode(attack.req(1, 17), 0);
  for (size_t size = 0; size < kMadBytes; ++size) {
    manager.on_mad(ConstBytes(mad.bytes).first(size), arrival, attack.now);
  }
  std::vector<std::byte> longer(257);
  manager.on_mad(longer, arrival, attack.now);
  EXPECT_EQ(manager.counters().of(DropReason::kNotWhole), 257u);
  mad.bytes[1] = std::byte{0x03};
  manager.on_mad(mad.bytes, arrival, attack.now);
  EXPECT_EQ(manager.counters().of(DropReason::kNotOurs), 1u);
  attack.forge(Req{}, attack.b, attack.stranger);
  EXPECT_EQ(manager.counters().of(DropReason::kMalformed), 1u);
  EXPECT_TRUE(attack.b.sent.empty());
  EXPECT_TRUE(attack.b.heard.empty());
  EXPECT_EQ(manager.size(), 0u);
}

TEST(HostileDatagram, WithUnknownIdsLeavesNoState) {
  Attack attack;
  Endpoint& b = attack.b;
  attack.forge(Mra{.local_id = 5, .remote_id = 6}, b, attack.stranger);
  attack.forge(Rej{.local_id = 5, .remote_id = 6}, b, attack.stranger);
  attack.forge(Rej{.local_id = 5, .reason = 4, .ari_length = 8}, b, attack.stranger);
  attack.forge(Drep{.local_id = 5, .remote_id = 6}, b, attack.stranger);
  attack.forge(Apr{.local_id = 5, .remote_id = 6}, b, attack.stranger);
  attack.forge(SidrRep{.request_id = 5}, b, attack.stranger);
  EXPECT_TRUE(b.sent.empty());
  EXPECT_EQ(b.manager.counters().of(DropReason::kUnknownConnection), 6u);
  // These are answered, so that an honest peer need not wait. One answer for each message: nothing is
  // amplified.
  attack.forge(Rep{.local_id = 5, .remote_id = 6, .local_qpn = 17}, b, attack.stranger);
  EXPECT_TRUE(b.take_as<Rej>().is(RejReason::kInvalidCommunicationId));
  attack.forge(Rtu{.local_id = 5, .remote_id = 6}, b, attack.stranger);
  EXPECT_TRUE(b.take_as<Rej>().is(RejReason::kInvalidCommunicationId));
  attack.forge(Dreq{.local_id = 5, .remote_id = 6}, b, attack.stranger);
  const Drep drep = b.take_as<Drep>();
  EXPECT_EQ(drep.local_id, 6u);
  EXPECT_EQ(drep.remote_id, 5u);
  attack.forge(Lap{.local_id = 5, .remote_id = 6}, b, attack.stranger);
  EXPECT_EQ(b.take_as<Apr>().status, AprStatus::kInvalidCommunicationId);
  EXPECT_EQ(b.manager.size(), 0u);
  EXPECT_TRUE(b.heard.empty());
}

// After a restart of the agent the connection may still be restored.
TEST(UnknownConnection, IsNotDeniedWhileItMayBeRestored) {
  Attack attack;
  Endpoint& b = attack.b;
  b.restorable_qpn = 200;
  const Dreq dreq{.local_id = 5, .remote_id = 6, .remote_qpn = 200};
  attack.forge(dreq, b, attack.a);
  attack.forge(Rtu{.local_id = 5, .remote_id = 6}, b, attack.a);
  EXPECT_TRUE(b.sent.empty());
  attack.forge(Dreq{.local_id = 5, .remote_id = 6, .remote_qpn = 201}, b, attack.a);
  EXPECT_EQ(b.take_as<Drep>().local_id, 6u);
  b.restorable_qpn = 0;
  attack.forge(dreq, b, attack.a);
  EXPECT_EQ(b.take_as<Drep>().local_id, 6u);
}

TEST(HostileDatagram, FromAnotherHostDoesNotTouchAConnection) {
  Attack attack;
  const auto ids = attack.connect(100, 200);
  Endpoint& b = attack.b;
  const size_t heard = b.heard.size();
  attack.forge(Dreq{.local_id = ids.a, .remote_id = ids.b, .remote_qpn = 200}, b, attack.stranger);
  attack.forge(Rej{.local_id = ids.a, .remote_id = ids.b, .rejected = Answered::kOther, .reason = 28}, b,
               attack.stranger);
  attack.forge(Rtu{.local_id = ids.a, .remote_id = ids.b}, b, attack.stranger);
  attack.forge(Mra{.local_id = ids.a, .remote_id = ids.b}, b, attack.stranger);
  attack.forge(Drep{.local_id = ids.a, .remote_id = ids.b}, b, attack.stranger);
  EXPECT_EQ(b.heard.size(), heard);
  EXPECT_EQ(b.state(ids.b), State::kEstablished);
  EXPECT_EQ(b.manager.counters().of(DropReason::kWrongPeer), 5u);
  EXPECT_TRUE(b.sent.empty());
}

TEST(HostileDatagram, FromThePeerWithAnotherIdOrQpDoesNotTouchAConnection) {
  Attack attack;
  const auto ids = attack.connect(100, 200);
  Endpoint& b = attack.b;
  const size_t heard = b.heard.size();
  attack.forge(Dreq{.local_id = ids.a + 1, .remote_id = ids.b, .remote_qpn = 200}, b, attack.a);
  attack.forge(Dreq{.local_id = ids.a, .remote_id = ids.b, .remote_qpn = 201}, b, attack.a);
  attack.forge(Rej{.local_id = ids.a + 1, .remote_id = ids.b, .reason = 28}, b, attack.a);
  attack.forge(Rej{.remote_id = ids.b, .reason = 28}, b, attack.a);
  EXPECT_EQ(b.heard.size(), heard);
  EXPECT_EQ(b.state(ids.b), State::kEstablished);
  EXPECT_TRUE(b.sent.empty());
}

TEST(HostileDatagram, IsNoReplyToOurReqUnlessThePeerSentIt) {
  Attack attack;
  const LocalId id = *attack.a.manager.connect(attack.a.parameters_to(attack.b), 0, attack.now);
  const Rep rep{.local_id = 7, .remote_id = id, .local_qpn = 300};
  attack.forge(rep, attack.a, attack.stranger);
  EXPECT_EQ(attack.a.state(id), State::kReqSent);
  EXPECT_EQ(attack.a.manager.counters().of(DropReason::kWrongPeer), 1u);
  attack.forge(rep, attack.a, attack.b);
  EXPECT_EQ(attack.a.state(id), State::kRepReceived);
}

TEST(HostileDatagram, CannotMakeTwoConnectionsShareAnId) {
  Attack attack;
  const auto ids = attack.connect(100, 200);
  const LocalId other = *attack.a.manager.connect(attack.a.parameters_to(attack.b, 101), 0, attack.now);
  attack.forge(Rep{.local_id = ids.b, .remote_id = other, .local_qpn = 300}, attack.a, attack.b);
  EXPECT_EQ(attack.a.state(other), State::kReqSent);
  EXPECT_EQ(attack.a.manager.counters().of(DropReason::kUnexpected), 1u);
}

TEST(HostileDatagram, CannotDisconnectWhatIsNotConnected) {
  Attack attack;
  attack.forge(attack.req(7, 17), attack.b, attack.stranger);
  const LocalId id = attack.b.last().id;
  attack.forge(Dreq{.local_id = 7, .remote_id = id}, attack.b, attack.stranger);
  EXPECT_EQ(attack.b.state(id), State::kReqReceived);
  EXPECT_EQ(attack.b.manager.counters().of(DropReason::kUnexpected), 1u);
}

TEST(HostileDatagram, ReplayedFromAFormerConnectionChangesNothing) {
  Pair pair;
  std::vector<Datagram> all;
  const auto record = [&](Endpoint& from, Endpoint& to) {
    while (!from.sent.empty()) {
      all.push_back(from.sent.front());
      from.sent.pop_front();
      to.receive(all.back(), pair.now);
    }
  };
  const LocalId a = *pair.a.manager.connect(pair.a.parameters_to(pair.b), 0, pair.now);
  record(pair.a, pair.b);
  const LocalId b = pair.b.last().id;
  ASSERT_TRUE(pair.b.manager.reply(b, pair.b.reply_parameters(), pair.now));
  record(pair.b, pair.a);
  ASSERT_TRUE(pair.a.manager.ready(a, {}, pair.now));
  record(pair.a, pair.b);
  ASSERT_TRUE(pair.a.manager.disconnect(a, {}, pair.now));
  record(pair.a, pair.b);
  ASSERT_TRUE(pair.b.manager.confirm_disconnect(b, {}, pair.now));
  record(pair.b, pair.a);
  const size_t heard_a = pair.a.heard.size(), heard_b = pair.b.heard.size();
  for (const Datagram& datagram : all) {  // while both ends are in TIMEWAIT
    (datagram.path.destination == address(1) ? pair.a : pair.b).receive(datagram, pair.now);
    pair.carry();
  }
  EXPECT_EQ(pair.a.heard.size(), heard_a);
  EXPECT_EQ(pair.b.heard.size(), heard_b);

  pair.pass(std::chrono::minutes(1));
  ASSERT_TRUE(pair.a.manager.destroy(a, pair.now));
  ASSERT_TRUE(pair.b.manager.destroy(b, pair.now));
  const auto next = pair.connect(101, 201);
  for (const Datagram& datagram : all) {  // long after TIMEWAIT
    (datagram.path.destination == address(1) ? pair.a : pair.b).receive(datagram, pair.now);
    pair.carry();
  }
  EXPECT_EQ(pair.a.state(next.a), State::kEstablished);
  EXPECT_EQ(pair.b.state(next.b), State::kEstablished);
  // The old REQ looks new. Its sender does not know this connection, and rejects the REP.
  ASSERT_EQ(pair.b.manager.half_open(), 1u);
  const LocalId ghost = pair.b.last().id;
  ASSERT_TRUE(pair.b.manager.reply(ghost, pair.b.reply_parameters(202), pair.now));
  pair.carry();
  EXPECT_EQ(pair.b.last().heard, Heard::kRejected);
  EXPECT_EQ(pair.b.manager.half_open(), 0u);
}

TEST(HostileReq, WithoutAListenerIsRefusedAndLeavesNoState) {
  Attack attack;
  attack.b.admission = Admission::refuse(RejReason::kInvalidServiceId);
  attack.forge(attack.req(1, 17), attack.b, attack.stranger);
  const Rej rej = attack.b.take_as<Rej>();
  EXPECT_TRUE(rej.is(RejReason::kInvalidServiceId));
  EXPECT_EQ(rej.local_id, 0u);
  EXPECT_EQ(rej.remote_id, 1u);
  EXPECT_EQ(attack.b.manager.size(), 0u);
}

TEST(HostileReq, ThatCannotBeServedIsRefusedWithTheReason) {
  Attack attack;
  const auto refused = [&](Req req, RejReason reason) {
    attack.forge(req, attack.b, attack.stranger);
    return attack.b.take_as<Rej>().is(reason);
  };
  Req req = attack.req(1, 17);
  req.transport = Transport::kRd;
  EXPECT_TRUE(refused(req, RejReason::kInvalidTransportServiceType));
  req.transport = Transport::kExtended;
  EXPECT_TRUE(refused(req, RejReason::kInvalidTransportServiceType));
  req = attack.req(1, 17);
  req.path_mtu = 0;
  EXPECT_TRUE(refused(req, RejReason::kInvalidPathMtu));
  req.path_mtu = 6;
  EXPECT_TRUE(refused(req, RejReason::kInvalidPathMtu));
  EXPECT_EQ(attack.b.admissions_asked, 0);
}

// Otherwise a REQ could make us send to a third host.
TEST(HostileReq, ThatNamesAnotherHostIsRefused) {
  Attack attack;
  Req req = attack.req(1, 17);
  req.primary.local_gid = address(1);
  attack.forge(req, attack.b, attack.stranger);
  const Datagram answer = attack.b.take();
  EXPECT_EQ(answer.path.destination, address(9));
  EXPECT_TRUE(decode<Rej>(answer.mad.bytes)->is(RejReason::kInvalidGid));
  req = attack.req(1, 17);
  req.primary.remote_gid = address(1);
  attack.forge(req, attack.b, attack.stranger);
  EXPECT_TRUE(attack.b.take_as<Rej>().is(RejReason::kInvalidGid));
}

TEST(HostileReq, BeyondTheBacklogIsDroppedForThePeerToTryAgain) {
  Attack attack;
  attack.b.admission = Admission::ignore();
  attack.forge(attack.req(1, 17), attack.b, attack.stranger);
  EXPECT_TRUE(attack.b.sent.empty());
  EXPECT_EQ(attack.b.manager.counters().of(DropReason::kNotAdmitted), 1u);
  EXPECT_EQ(attack.b.manager.size(), 0u);
  attack.b.admission = Admission::admit(1);
  attack.forge(attack.req(1, 17), attack.b, attack.stranger);
  EXPECT_EQ(attack.b.manager.size(), 1u);
}

TEST(HostileReq, InAFloodMeetsTheLimitOfHalfOpenConnections) {
  ManagerConfig config;
  config.max_half_open = 100;
  Attack attack;
  Endpoint target(2, config);
  for (uint32_t i = 1; i <= 10000; ++i) attack.forge(attack.req(i, 16 + i), target, attack.stranger);
  EXPECT_EQ(target.manager.size(), 100u);
  EXPECT_EQ(target.manager.half_open(), 100u);
  EXPECT_EQ(target.manager.counters().of(DropReason::kTooManyHalfOpen), 9900u);
  for (uint32_t i = 1; i <= 1000; ++i) {
    attack.forge(SidrReq{.request_id = i}, target, attack.stranger);
  }
  EXPECT_EQ(target.manager.size(), 100u);
  EXPECT_EQ(target.admissions_asked, 100);
}

TEST(HostileReq, InAFloodThatIsRefusedByTheOwnerMeetsTheLimitOfWhatWaits) {
  ManagerConfig config;
  config.max_waiting = 50;
  struct Refusing : Endpoint {
    using Endpoint::Endpoint;
    void react(const Event& event) override { ASSERT_TRUE(manager.destroy(event.id, TimePoint{})); }
  };
  Attack attack;
  Refusing target(2, config);
  for (uint32_t i = 1; i <= 10000; ++i) attack.forge(attack.req(i, 16 + i), target, attack.stranger);
  EXPECT_EQ(target.manager.size(), 50u);
  EXPECT_EQ(target.manager.waiting(), 50u);
  EXPECT_EQ(target.manager.half_open(), 0u);
  EXPECT_EQ(target.sent.size(), 10000u);
}

TEST(HostileMra, CannotDelayARequestWithoutEnd) {
  Attack attack;
  const LocalId id = *attack.a.manager.connect(attack.a.parameters_to(attack.b), 0, attack.now);
  Mra mra;
  mra.remote_id = id;
  mra.local_id = 7;
  mra.service_timeout = 31;
  for (int i = 0; i < 10000 && (attack.a.heard.empty() || attack.a.last().heard != Heard::kUnreachable);
       ++i) {
    attack.forge(mra, attack.a, attack.b);
    attack.now = std::max(attack.now, attack.a.manager.deadline());
    attack.a.manager.on_timer(attack.now);
  }
  EXPECT_EQ(attack.a.last().heard, Heard::kUnreachable);
}

// Every byte of every message drawn at random, in any state of the connection that it names. The manager only
// produces events and answers.
TEST(HostileDatagram, WithAnyContentDoesNoHarm) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    ManagerConfig config;
    config.max_half_open = 20;
    Pair pair(config);
    const auto ids = pair.connect(100, 200);
    for (int i = 0; i < 3000; ++i) {
      Mad mad = encode(Rtu{}, random.next());
      mad.bytes[17] = static_cast<std::byte>(0x10 + random.below(kMessageTypes));
      for (size_t at = kMadHeaderBytes; at < kMadBytes; ++at) {
        mad.bytes[at] = static_cast<std::byte>(random.one_in(3) ? random.next() : 0);
      }
      const bool aims = !random.one_in(4);
      if (aims) store_be(&mad.bytes[28], ids.b), store_be(&mad.bytes[24], ids.a);
      pair.b.receive({mad, pair.a.path_to(pair.b)}, pair.now);
      if (random.one_in(10)) pair.pass(std::chrono::milliseconds(random.below(5000)));
      if (random.one_in(50) && !pair.b.heard.empty()) {
        std::ignore = pair.b.manager.reply(pair.b.last().id, pair.b.reply_parameters(), pair.now);
      }
    }
  }
}

}  // namespace
}  // namespace verbena::cm
