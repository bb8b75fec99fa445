// SPDX-License-Identifier: Apache-2.0
// On a host with a Verbena agent only the agent can send from UDP port 4791. Other programs of that host send
// from other ports, and cannot act on the connections of its users. Hosts with an adapter or the kernel's rxe
// may send from any port.
#include <gtest/gtest.h>

#include "management/cm/support/endpoint.h"

namespace verbena::cm {
namespace {

// Two hosts with a Verbena agent. Another program of host a sends to b with the address of a.
struct VerbenaHosts : Pair {
  VerbenaHosts() { a.has_roce_port = b.has_roce_port = true; }

  template <class Message>
  void forge(const Message& message, Endpoint& at, const Endpoint& as) {
    at.receive({encode(message, 1), as.path_to(at)}, now);
  }
  // A REQ from a to b; with `is_of_b`, from b to a.
  Req req(uint32_t id, uint32_t qpn, bool is_of_b = false) const {
    Req req;
    req.local_id = id;
    req.local_qpn = qpn;
    req.path_mtu = 3;
    req.primary.local_gid = address(is_of_b ? 2 : 1);
    req.primary.remote_gid = address(is_of_b ? 1 : 2);
    req.primary.local_ack_timeout = 19;
    req.local_response_timeout = 20;
    return req;
  }
  uint64_t dropped(const Endpoint& at) const { return at.manager.counters().of(DropReason::kWrongPeer); }
};

TEST(SourcePort, OthersOfTheHostCannotEndAConnection) {
  VerbenaHosts hosts;
  const auto ids = hosts.connect(100, 200);
  for (const Duration later : {Duration::zero(), Duration(KnownPeers::kPortMemory)}) {
    hosts.now += later;  // the connection remembers the port for longer than KnownPeers does
    const size_t heard_a = hosts.a.heard.size();
    const size_t heard_b = hosts.b.heard.size();
    const Rej rej{.local_id = ids.a, .remote_id = ids.b, .rejected = Answered::kOther, .reason = 28};
    hosts.forge(Dreq{.local_id = ids.a, .remote_id = ids.b, .remote_qpn = 200}, hosts.b, hosts.a);
    hosts.forge(rej, hosts.b, hosts.a);
    hosts.forge(Dreq{.local_id = ids.b, .remote_id = ids.a, .remote_qpn = 100}, hosts.a, hosts.b);
    EXPECT_EQ(hosts.a.heard.size(), heard_a);
    EXPECT_EQ(hosts.b.heard.size(), heard_b);
    EXPECT_EQ(hosts.a.state(ids.a), State::kEstablished);
    EXPECT_EQ(hosts.b.state(ids.b), State::kEstablished);
    EXPECT_TRUE(hosts.a.sent.empty());
    EXPECT_TRUE(hosts.b.sent.empty());
  }
  EXPECT_EQ(hosts.dropped(hosts.a), 2u);
  EXPECT_EQ(hosts.dropped(hosts.b), 4u);
  ASSERT_TRUE(hosts.a.manager.disconnect(ids.a, {}, hosts.now));
  hosts.carry();
  EXPECT_EQ(hosts.b.last().heard, Heard::kDisconnectRequest) << "the agent itself can";
}

// A REQ with the QPN of an established connection means that the peer has lost that connection.
TEST(SourcePort, OthersOfTheHostCannotMakeAConnectionStale) {
  VerbenaHosts hosts;
  const auto ids = hosts.connect(100, 200);
  hosts.forge(hosts.req(7, 100), hosts.b, hosts.a);
  EXPECT_TRUE(hosts.b.take_as<Rej>().is(RejReason::kStaleConnection)) << "the other is told so";
  EXPECT_EQ(hosts.dropped(hosts.b), 1u);
  EXPECT_EQ(hosts.b.manager.counters().stale_connections, 0u);
  EXPECT_EQ(hosts.b.state(ids.b), State::kEstablished);
}

// The agent of that host has answered a request of ours, so its port is known for kPortMemory.
TEST(SourcePort, OthersOfTheHostCannotAskInItsNameForAWhile) {
  VerbenaHosts hosts;
  hosts.connect(100, 200);
  const int asked = hosts.a.admissions_asked;
  hosts.forge(hosts.req(7, 101, true), hosts.a, hosts.b);
  hosts.forge(SidrReq{.request_id = 9}, hosts.a, hosts.b);
  EXPECT_EQ(hosts.a.admissions_asked, asked);
  EXPECT_TRUE(hosts.a.sent.empty());
  EXPECT_EQ(hosts.dropped(hosts.a), 2u);
  // The host may have been restarted since, with the kernel's rxe.
  hosts.now += KnownPeers::kPortMemory;
  hosts.forge(hosts.req(8, 102, true), hosts.a, hosts.b);
  EXPECT_EQ(hosts.a.admissions_asked, asked + 1);
}

// A user with programs at both ends knows both IDs. On a host with an adapter that user can send from port
// 4791.
TEST(SourcePort, NobodyMakesAHostUnheardByTheIdsOfItsOwnConnection) {
  VerbenaHosts hosts;
  hosts.a.has_roce_port = false;
  const auto ids = hosts.connect(100, 200);
  const Rtu rtu{.local_id = ids.a, .remote_id = ids.b};
  hosts.b.receive({encode(rtu, 1), hosts.a.path_to(hosts.b), true}, hosts.now);
  const int asked = hosts.b.admissions_asked;
  hosts.connect(101, 201);
  EXPECT_EQ(hosts.b.admissions_asked, asked + 1);
  EXPECT_EQ(hosts.dropped(hosts.b), 0u);
}

TEST(SourcePort, OthersOfTheHostCannotRefuseARequestThatTheAgentHasTaken) {
  VerbenaHosts hosts;
  const LocalId active = *hosts.a.manager.connect(hosts.a.parameters_to(hosts.b), 5, hosts.now);
  hosts.carry();
  hosts.forge(Rej{.local_id = active, .rejected = Answered::kReq, .reason = 4}, hosts.b, hosts.a);
  EXPECT_EQ(hosts.b.state(hosts.b.last().id), State::kReqReceived);
  EXPECT_EQ(hosts.dropped(hosts.b), 1u);
}

// On a host with an adapter any user can send from port 4791, but cannot read what the adapter receives.
TEST(SourcePort, NobodyTakesAHostForVerbenaThatHasNotAnsweredFromThePort) {
  VerbenaHosts hosts;
  hosts.a.has_roce_port = false;
  hosts.a.receive({encode(Rtu{.local_id = 5, .remote_id = 6}, 1), hosts.b.path_to(hosts.a), true}, hosts.now);
  hosts.b.receive({encode(hosts.req(7, 101), 1), hosts.a.path_to(hosts.b), true}, hosts.now);
  hosts.b.receive({encode(Dreq{.local_id = 5, .remote_id = 6}, 1), hosts.a.path_to(hosts.b), true},
                  hosts.now);
  hosts.b.sent.clear();
  const auto ids = hosts.connect(100, 200);
  EXPECT_EQ(hosts.b.state(ids.b), State::kEstablished);
  ASSERT_TRUE(hosts.a.manager.disconnect(ids.a, {}, hosts.now));
  hosts.carry();
  EXPECT_EQ(hosts.b.last().heard, Heard::kDisconnectRequest);
  EXPECT_EQ(hosts.dropped(hosts.b), 0u);
}

// An agent of an older release sent from other ports. Once its successor has sent from port 4791, the
// connection accepts messages from that port only.
TEST(SourcePort, AConnectionLearnsOfThePortLater) {
  VerbenaHosts hosts;
  hosts.a.has_roce_port = false;
  const auto ids = hosts.connect(100, 200);
  EXPECT_FALSE(hosts.b.manager.info(ids.b)->peer_has_roce_port);
  const Rtu rtu{.local_id = ids.a, .remote_id = ids.b};
  hosts.b.receive({encode(rtu, 1), hosts.a.path_to(hosts.b), true}, hosts.now);
  EXPECT_TRUE(hosts.b.manager.info(ids.b)->peer_has_roce_port);
}

TEST(SourcePort, IsStillKnownWhenAConnectionIsTakenUp) {
  VerbenaHosts hosts;
  const auto ids = hosts.connect(100, 200);
  Endpoint next(2, {}, 33);
  next.has_roce_port = true;
  ASSERT_TRUE(next.manager.restore(*hosts.b.manager.info(ids.b), 5, hosts.now));
  hosts.forge(Dreq{.local_id = ids.a, .remote_id = ids.b, .remote_qpn = 200}, next, hosts.a);
  EXPECT_EQ(next.state(ids.b), State::kEstablished);
}

}  // namespace
}  // namespace verbena::cm
