// SPDX-License-Identifier: Apache-2.0
// Limits on what users can do to each other's connections and ports under root's agent.
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/agent_process.h"
#include "agent/cm/peer.h"
#include "agent/cm/program.h"
#include "agent/network_namespace.h"
#include "agent/sessions/stranger.h"
#include "control/client/client.h"
#include "control/client/command_client.h"
#include "management/cm/parameters.h"
#include "wire/roce/qpn.h"

namespace verbena {
namespace {

using protocol::CmEvent;
using test::address;
using test::CmPeer;
using test::CmProgram;
using test::eventually;
using test::kOther;
using test::parameters;
using test::Stranger;
using test::text_of;

constexpr uint16_t kPort = 7471;

class CmUsers : public test::NamespaceTest {
 protected:
  void SetUp() override {
    NamespaceTest::SetUp();
    if (IsSkipped()) return;
    if (!test::has_strangers()) GTEST_SKIP() << "needs root";
    ASSERT_TRUE(test::shell("ip addr add 10.7.0.1/32 dev lo"));
    agent_.emplace();
  }

  std::optional<test::AgentProcess> agent_;
};

// ---- half-open connections

cm::Req request_for(uint16_t port, uint32_t number) {
  cm::Req req = test::request_to(port);
  req.local_id = number;
  req.local_qpn = number & 0xffffff;
  req.local_response_timeout = 20;
  return req;
}

bool can_bind(CmProgram& program, const protocol::CmAddress& to) {
  const uint32_t id = program.create();
  const bool bound = program.bind(id, to) == 0;
  program.destroy(id);
  return bound;
}

TEST_F(CmUsers, WhoLetsRequestsLieLeavesOthersTheirOwn) {
  constexpr uint16_t kListeners = 9;
  constexpr uint32_t kRequests = 1000;  // to each listener: fewer than its backlog
  CmProgram program;
  ASSERT_TRUE(program.connected());
  auto admin = control::Admin::connect({.start_agent = false, .agent_program = {}});
  ASSERT_TRUE(admin);
  Stranger stranger(kOther, [](const Stranger::Line& line) {
    CmProgram own;
    if (!own.connected()) return 1;
    for (uint16_t i = 0; i < kListeners; ++i) {
      const uint32_t listener = own.create();
      if (own.bind(listener, address("0.0.0.0", kPort + 1 + i)) != 0) return 2;
      if (own.listen(listener, 1024) != 0) return 3;
    }
    line.say();
    line.hear();
    return 0;
  });
  ASSERT_TRUE(stranger.hear());
  CmPeer peer(agent_->pid());
  ASSERT_TRUE(eventually([&] { return can_bind(program, address("10.9.0.1")); }));
  const uint32_t listener = program.create();
  ASSERT_EQ(program.bind(listener, address("10.9.0.1", kPort)), 0);
  ASSERT_EQ(program.listen(listener), 0);

  uint32_t number = 1;
  for (uint16_t port = 1; port <= kListeners; ++port) {
    for (uint32_t i = 0; i < kRequests; ++i, ++number) {
      peer.say(request_for(kPort + port, number), number);
      if (number % 64 != 0) continue;
      // Waits for the agent, so that none of the requests is lost.
      ASSERT_TRUE(eventually([&] {
        const auto status = (*admin)->status();
        const auto type = static_cast<size_t>(cm::MessageType::kReq);
        return status && status->connection_management.received[type] >= number;
      }));
    }
  }
  const auto status = (*admin)->status();
  ASSERT_TRUE(status);
  const auto lying = status->connection_management.connections[static_cast<size_t>(cm::State::kMraReqSent)];
  EXPECT_GT(lying, 3500u) << "else nothing was tried";
  peer.say(request_for(kPort, 0x800000), 1);
  EXPECT_EQ(program.event().type, static_cast<uint32_t>(RDMA_CM_EVENT_CONNECT_REQUEST));
  EXPECT_EQ(stranger.end(), 0);
}

// ---- connections that a restarted agent accepts

protocol::CmRestoreRequest restoration(uint32_t id, uint32_t state, const protocol::CmRoute& route) {
  protocol::CmRestoreRequest request{};
  request.create.id = id;
  request.create.channel = CmProgram::kChannel;
  request.create.port_space = RDMA_PS_TCP;
  request.create.qp_type = IBV_QPT_RC;
  request.state = state;
  request.tos = ~0u;
  request.route = route;
  return request;
}

protocol::CmRoute own_route() {
  protocol::CmRoute route{};
  route.source = address("10.7.0.1");
  route.destination = address("10.7.0.9", 1);
  const auto peer = CmPeer::address(9);
  std::ranges::copy(peer.bytes, route.destination_gid);
  route.path_mtu = IBV_MTU_1024;
  return route;
}

// Runs in a child of the test below: a program that claims connections that never existed, from QPs of its
// own.
int invent_connections(const Stranger::Line&) {
  auto client = control::Client::connect({.start_agent = false, .agent_program = {}});
  if (!client) return 1;
  const auto slot = (*client)->take_slot();
  if (!slot) return 2;
  CmProgram program;
  if (!program.connected()) return 3;
  for (uint32_t i = 0; i < 100; ++i) {
    auto request = restoration(1000 + i, protocol::kCmConnected, own_route());
    request.connection.local_id = 0x1000 + i;
    request.connection.remote_id = 0x2000 + i;
    request.connection.local_qpn = roce::Qpn::in_slot(slot->index, i).value();
    request.connection.remote_qpn = 0x4000 + i;
    if (program.restore(request) != EPERM) return 4;
  }
  // A claim that needs no more than a new identifier is accepted.
  return program.restore(restoration(5000, protocol::kCmBound, own_route())) == 0 ? 0 : 5;
}

TEST_F(CmUsers, WhoInventsConnectionsIsNotBelieved) {
  EXPECT_EQ(Stranger(kOther, invent_connections).end(), 0);
}

TEST_F(CmUsers, NorAfterARestartOfTheAgent) {
  {
    CmProgram roots;  // its agent connection brings the takeover state
    ASSERT_TRUE(roots.connected());
    agent_->stop(SIGKILL);
    agent_.emplace();
    roots.reconnect();
    EXPECT_EQ(Stranger(kOther, invent_connections).end(), 0);
  }
}

// ---- a slot that comes back

// A child of the test below: leaves one connection that stands and one that is being set up, with QPs of a
// slot that it gives back.
int leave_connections(const Stranger::Line& line) {
  auto client = control::Client::connect({.start_agent = false, .agent_program = {}});
  if (!client) return 1;
  const auto slot = (*client)->take_slot();
  if (!slot) return 2;
  const auto qpn = [&](uint32_t index) { return roce::Qpn::in_slot(slot->index, index).value(); };
  CmProgram program;
  if (!program.connected()) return 3;
  const uint32_t standing = program.resolve(address("10.7.0.1", kPort));
  if (program.connect(standing, parameters("first", qpn(2))) != 0) return 4;
  if (program.event().type != RDMA_CM_EVENT_CONNECT_RESPONSE || program.accept(standing) != 0) return 5;
  const uint32_t begun = program.resolve(address("10.7.0.1", kPort));
  if (program.connect(begun, parameters("second", qpn(1))) != 0) return 6;
  const uint32_t late = program.resolve(address("10.7.0.1", kPort));
  line.hear();
  if (!(*client)->return_slot(slot->index)) return 10;
  const CmEvent told = program.event();
  if (told.type != RDMA_CM_EVENT_UNREACHABLE || told.id != begun) return 7;
  if (program.connect(late, parameters("third", qpn(3))) != EPERM) return 8;
  const CmEvent ended = program.event();
  return ended.type == RDMA_CM_EVENT_DISCONNECTED && ended.id == standing ? 0 : 9;
}

// The peer would refuse connections of the slot's next owner as stale.
TEST_F(CmUsers, ASlotThatComesBackLeavesNoConnectionsWithItsQps) {
  CmProgram server;
  ASSERT_TRUE(server.connected());
  const uint32_t listener = server.create();
  ASSERT_EQ(server.bind(listener, address("10.7.0.1", kPort)), 0);
  ASSERT_EQ(server.listen(listener), 0);
  Stranger stranger(kOther, leave_connections);
  const uint32_t standing = server.expect(RDMA_CM_EVENT_CONNECT_REQUEST);
  ASSERT_EQ(server.accept(standing, parameters("welcome")), 0);
  EXPECT_EQ(server.expect(RDMA_CM_EVENT_ESTABLISHED), standing);
  const uint32_t begun = server.expect(RDMA_CM_EVENT_CONNECT_REQUEST);
  stranger.say();
  EXPECT_EQ(server.expect(RDMA_CM_EVENT_DISCONNECTED), standing);
  EXPECT_EQ(server.accept(begun, parameters("too late")), EINVAL) << "the request was withdrawn";
  EXPECT_EQ(server.disconnect(standing), 0);
  EXPECT_EQ(stranger.end(), 0);
}

// A user who takes all ephemeral ports would leave other users none to connect from.
TEST_F(CmUsers, OneWhoTakesAllPortsLeavesTheOthersTheirs) {
  ASSERT_TRUE(test::shell("echo 40000 40099 > /proc/sys/net/ipv4/ip_local_port_range"));
  const auto take_all = [] {
    CmProgram program;
    int taken = 0;
    while (program.connected() && program.bind(program.create(), address("0.0.0.0")) == 0) ++taken;
    return taken;
  };
  Stranger greedy(kOther, [&](const Stranger::Line& line) {
    CmProgram program;
    while (program.connected() && program.bind(program.create(), address("0.0.0.0")) == 0) {
    }
    line.say();
    line.hear();
    return 0;
  });
  ASSERT_TRUE(greedy.hear());
  EXPECT_GT(Stranger(kOther - 1, [&](const Stranger::Line&) { return take_all(); }).end(), 5);
  EXPECT_GT(take_all(), 10);
}

// The idle timeout of an agent that a program has started.
constexpr Duration kIdleTimeout = std::chrono::seconds(5);

// Returns the pid of the agent that listens; 0: none.
pid_t listening_agent() {
  auto admin = control::Admin::connect({.start_agent = false, .agent_program = {}});
  if (!admin) return 0;
  const auto status = (*admin)->status();
  return status ? static_cast<pid_t>(status->pid) : 0;
}

// Ends an agent that is not our child.
void end_agent(pid_t agent) {
  ASSERT_GT(agent, 0);
  ::kill(agent, SIGTERM);
  EXPECT_TRUE(eventually([agent] { return ::kill(agent, 0) != 0; }));
}

// Holds a port until it hears something.
int hold_port(const Stranger::Line& line) {
  CmProgram own;
  if (!own.connected()) return 1;
  if (own.bind(own.create(), address("0.0.0.0", kPort)) != 0) return 2;
  line.say();
  line.hear();
  return 0;
}

pid_t standby() {
  return test::find_process("verbena-keeper");
}

// Root's agent, its standby, and a listener of a user who has no slot.
TEST_F(CmUsers, APortIsItsOwnersAlsoWhenTheAgentIsKilled) {
  Stranger owner(kOther, [](const Stranger::Line& line) {
    CmProgram own;
    if (!own.connected()) return 1;
    const uint32_t listener = own.create();
    if (own.bind(listener, address("0.0.0.0", kPort)) != 0 || own.listen(listener) != 0) return 2;
    const protocol::CmRoute route = own.route();
    line.say();
    if (!line.hear()) return 3;
    own.reconnect();
    if (own.restore(restoration(500, protocol::kCmListening, route)) != 0) return 4;
    line.say();
    line.hear();
    return 0;
  });
  ASSERT_TRUE(owner.hear());
  ASSERT_TRUE(eventually([] { return standby() != 0; }));
  agent_->stop(SIGKILL);
  // The standby starts the next agent. A second one of ours would give way to it, perhaps before it listens.
  ASSERT_TRUE(eventually([] { return listening_agent() != 0; }));
  EXPECT_EQ(Stranger(kOther - 1,
                     [](const Stranger::Line&) {
                       CmProgram thief;
                       if (!thief.connected()) return 1;
                       for (const char* host : {"0.0.0.0", "10.7.0.1", "127.0.0.1"}) {
                         if (thief.bind(thief.create(), address(host, kPort)) == 0) return 2;
                       }
                       return thief.bind(thief.create(), address("0.0.0.0", kPort + 1)) == 0 ? 0 : 3;
                     })
                .end(),
            0);
  owner.say();
  EXPECT_TRUE(owner.hear()) << "it has its port again";
  EXPECT_EQ(owner.end(), 0);
  EXPECT_TRUE(eventually([] { return standby() == 0; }));
  end_agent(listening_agent());
}

// Otherwise the ports of other users would be lost with the next agent.
TEST_F(CmUsers, AStandbyThatIsKilledIsFollowedByAnother) {
  Stranger owner(kOther, hold_port);
  ASSERT_TRUE(owner.hear());
  ASSERT_TRUE(eventually([] { return standby() != 0; }));
  const pid_t first = standby();
  ::kill(first, SIGKILL);
  EXPECT_TRUE(eventually([first] {
    const pid_t next = standby();
    return next != 0 && next != first;
  }));
  owner.say();
  EXPECT_EQ(owner.end(), 0);
}

// A program that dies together with the agent keeps its claims for a while. Without clients the agent would
// end, and the standby would start the next one, endlessly.
TEST_F(CmUsers, TheNextAgentStaysAsLongAsAPortIsKeptForItsOwner) {
  {
    Stranger owner(kOther, hold_port);
    ASSERT_TRUE(owner.hear());
    ASSERT_TRUE(eventually([] { return standby() != 0; }));
    agent_->stop(SIGKILL);
  }
  ASSERT_TRUE(eventually([] { return listening_agent() != 0; }));
  const pid_t next = listening_agent();
  const auto beyond_idle = MonotonicClock::now() + kIdleTimeout + std::chrono::seconds(2);
  while (MonotonicClock::now() < beyond_idle) {
    ASSERT_EQ(::kill(next, 0), 0) << "it has ended";
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  ::kill(standby(), SIGSTOP);  // so that it does not start another agent
  end_agent(next);
  ::kill(standby(), SIGKILL);
}

// ---- forged messages

// Sends to QP1 from any address of this host, as every program can.
class Forger : private net::PacketHandler {
 public:
  Forger() {
    auto socket = net::open_receive_socket(0);
    if (!socket) return;
    auto port = net::UdpPort::create(std::move(*socket), {});
    if (port) port_ = std::move(*port);
  }
  template <class Message>
  bool say(const Message& message, const roce::Path& path) {
    const cm::Mad mad = cm::encode(message, 1);
    roce::Headers headers;
    headers.opcode = roce::make_opcode(roce::Service::kUd, roce::Operation::kSendOnly);
    headers.destination = headers.source = roce::Qpn(cm::kGsiQpn);
    headers.qkey = cm::kGsiQkey;
    const ConstBytes payload(mad.bytes);
    return port_ &&
           port_->send({path, headers, {&payload, 1}, cm::kMadBytes}) == transport::SendStatus::kSent &&
           port_->flush();
  }

 private:
  void on_packet(const transport::IncomingPacket&) override {}
  std::unique_ptr<net::UdpPort> port_;
};

roce::Address own_address() {
  const uint8_t bytes[] = {10, 7, 0, 1};
  return roce::Address::from_ipv4(bytes);
}

// Two programs of root on one host, with a connection between them.
TEST_F(CmUsers, NobodyEndsAConnectionInTheNameOfItsPeer) {
  constexpr uint32_t kQpn = 0x4711;
  CmProgram server;
  CmProgram client;
  ASSERT_TRUE(server.connected() && client.connected());
  const uint32_t listener = server.create();
  ASSERT_EQ(server.bind(listener, address("10.7.0.1", kPort)), 0);
  ASSERT_EQ(server.listen(listener), 0);
  const auto connect = [&](uint32_t qpn) {
    const uint32_t active = client.resolve(address("10.7.0.1", kPort));
    EXPECT_EQ(client.connect(active, parameters("", qpn)), 0);
    const uint32_t passive = server.expect(RDMA_CM_EVENT_CONNECT_REQUEST);
    EXPECT_EQ(server.accept(passive, parameters("", qpn + 1)), 0);
    client.expect(RDMA_CM_EVENT_CONNECT_RESPONSE);
    EXPECT_EQ(client.accept(active), 0);
    server.expect(RDMA_CM_EVENT_ESTABLISHED);
  };
  connect(kQpn);
  EXPECT_EQ(Stranger(kOther,
                     [](const Stranger::Line&) {
                       cm::Req req = request_for(kPort, 0x1234);
                       req.local_qpn = kQpn;
                       req.primary.local_gid = req.primary.remote_gid = own_address();
                       roce::Path path;
                       path.source = path.destination = own_address();
                       return Forger().say(req, path) ? 0 : 1;
                     })
                .end(),
            0);
  // A new connection: by its events the agent has processed the forged messages.
  connect(kQpn + 2);
  EXPECT_FALSE(client.poll_event());
  EXPECT_FALSE(server.poll_event());
}

}  // namespace
}  // namespace verbena
