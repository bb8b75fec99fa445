// SPDX-License-Identifier: Apache-2.0
// The agent's QP1, as another host uses it.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <string>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "adapter/net/net_namespace.h"
#include "adapter/net/packets.h"
#include "adapter/net/udp/route_check.h"
#include "adapter/net/udp/udp_port.h"
#include "agent/agent_process.h"
#include "agent/cm/gsi_port.h"
#include "agent/cm/peer.h"
#include "agent/cm/program.h"
#include "agent/event_loop.h"
#include "agent/network_namespace.h"
#include "base/socket_option.h"
#include "control/client/command_client.h"
#include "management/cm/messages.h"
#include "management/cm/parameters.h"

namespace verbena {
namespace {

using protocol::CmEvent;
using test::address;
using test::CmPeer;
using test::CmProgram;
using test::eventually;
using test::parameters;
using test::text_of;

constexpr uint16_t kPort = 7471;
constexpr uint32_t kPeersId = 0x1234;
constexpr uint32_t kPeersQpn = 0x88;
constexpr uint8_t kSoon = 12;  // 17 ms: the peer's response time

// A REQ for a TCP port, as the kernel's rdma_cm sends it.
cm::Req request_for(uint16_t port, const std::string& text) {
  cm::Req req = test::request_to(port);
  req.local_id = kPeersId;
  req.local_qpn = kPeersQpn;
  req.responder_resources = 3;
  req.initiator_depth = 1;
  req.remote_response_timeout = 20;
  req.local_response_timeout = kSoon;
  req.starting_psn = 0xabcdef;
  req.retry_count = 7;
  std::memcpy(req.private_data.data() + cm::IpHeader::kBytes, text.data(), text.size());
  return req;
}

cm::Mad mad_of(uint8_t management_class, uint8_t method) {
  cm::Mad mad;
  mad.bytes[0] = std::byte{1};
  mad.bytes[1] = std::byte{management_class};
  mad.bytes[2] = std::byte{1};
  mad.bytes[3] = std::byte{method};
  mad.bytes[15] = std::byte{0x77};  // part of the transaction ID
  return mad;
}

class CmGsi : public test::NamespaceTest {
 protected:
  void SetUp() override {
    NamespaceTest::SetUp();
    if (IsSkipped()) return;
    agent_.emplace();
    program_.emplace();
    ASSERT_TRUE(program_->connected());
    auto admin = control::Admin::connect({.start_agent = false, .agent_program = {}});
    ASSERT_TRUE(admin);
    admin_ = std::move(*admin);
    peer_.emplace(agent_->pid());
    // Waits until the agent knows its new address.
    ASSERT_TRUE(eventually([&] {
      const uint32_t id = program_->create();
      const bool bound = program_->bind(id, address("10.9.0.1")) == 0;
      program_->destroy(id);
      return bound;
    }));
  }
  void TearDown() override {
    peer_.reset();  // back to the agent's network namespace
    admin_.reset();
  }

  void listen() {
    const uint32_t listener = program_->create();
    ASSERT_EQ(program_->bind(listener, address("10.9.0.1", kPort)), 0);
    ASSERT_EQ(program_->listen(listener), 0);
  }
  // Returns the program's identifier of an established connection.
  uint32_t establish() {
    listen();
    peer_->say(request_for(kPort, "hello"), 1);
    const uint32_t passive = program_->expect(RDMA_CM_EVENT_CONNECT_REQUEST);
    EXPECT_EQ(program_->accept(passive, parameters("welcome", 0x99)), 0);
    rep_ = peer_->expect<cm::Rep>();
    peer_->say(cm::Rtu{kPeersId, rep_.local_id, {}}, 1);
    EXPECT_EQ(program_->expect(RDMA_CM_EVENT_ESTABLISHED), passive);
    return passive;
  }
  protocol::CmStatus status() {
    const auto status = admin_->status();
    EXPECT_TRUE(status);
    return status ? status->connection_management : protocol::CmStatus{};
  }

  std::optional<test::AgentProcess> agent_;
  std::optional<CmProgram> program_;
  std::unique_ptr<control::Admin> admin_;
  std::optional<CmPeer> peer_;
  cm::Rep rep_;
};

TEST_F(CmGsi, AcceptsAConnectionOfAnotherHost) {
  listen();
  peer_->say(request_for(kPort, "hello"), 0x4711);
  const CmEvent request = program_->event();
  EXPECT_EQ(request.type, static_cast<uint32_t>(RDMA_CM_EVENT_CONNECT_REQUEST));
  EXPECT_EQ(text_of(request), "hello");
  EXPECT_STREQ(request.route.link, "rxe_v0");
  EXPECT_EQ(ntohs(request.route.destination.port), 4000);
  EXPECT_EQ(request.route.path_mtu, IBV_MTU_1024);
  EXPECT_EQ(request.route.packet_life_time, 16);
  EXPECT_EQ(request.connection.remote_id, kPeersId);
  EXPECT_EQ(request.connection.send_psn, 0xabcdefu);

  ASSERT_EQ(program_->accept(request.id, parameters("welcome", 0x99)), 0);
  const auto rep = peer_->expect<cm::Rep>();
  EXPECT_EQ(peer_->transaction(), 0x4711u);
  EXPECT_EQ(peer_->last_path().hop_limit, 64);
  EXPECT_EQ(rep.remote_id, kPeersId);
  EXPECT_EQ(rep.local_qpn, 0x99u);
  EXPECT_EQ(rep.starting_psn, request.connection.receive_psn);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(rep.private_data.data())), "welcome");
  peer_->say(cm::Rtu{kPeersId, rep.local_id, {}}, 0x4711);
  program_->expect(RDMA_CM_EVENT_ESTABLISHED);
  const protocol::CmStatus counted = status();
  EXPECT_EQ(counted.connections[static_cast<size_t>(cm::State::kEstablished)], 1u);
  EXPECT_EQ(counted.listening, 1u);
  EXPECT_EQ(counted.received[static_cast<size_t>(cm::MessageType::kReq)], 1u);
  EXPECT_EQ(counted.sent[static_cast<size_t>(cm::MessageType::kRep)], 1u);
}

TEST_F(CmGsi, RejectsWhereNobodyListens) {
  peer_->say(request_for(kPort, "hello"), 1);
  const auto rej = peer_->expect<cm::Rej>();
  EXPECT_TRUE(rej.is(cm::RejReason::kInvalidServiceId));
  EXPECT_EQ(rej.remote_id, kPeersId);
  EXPECT_EQ(rej.rejected, cm::Answered::kReq);
}

TEST_F(CmGsi, SpeaksFromTheRocePort) {
  peer_->say(request_for(kPort, "hello"), 1);
  peer_->expect<cm::Rej>();
  EXPECT_EQ(peer_->last_source_port(), roce::kUdpPort);
}

TEST_F(CmGsi, BelievesNoOtherProgramOfAHostWithAnAgent) {
  listen();
  peer_->say_as_agent(request_for(kPort, "hello"), 1);
  const uint32_t passive = program_->expect(RDMA_CM_EVENT_CONNECT_REQUEST);
  ASSERT_EQ(program_->accept(passive, parameters("welcome", 0x99)), 0);
  const auto rep = peer_->expect<cm::Rep>();
  peer_->say_as_agent(cm::Rtu{kPeersId, rep.local_id, {}}, 1);
  program_->expect(RDMA_CM_EVENT_ESTABLISHED);
  const cm::Dreq dreq{kPeersId, rep.local_id, 0x99, {}};
  peer_->say(dreq, 2);
  ASSERT_TRUE(
      eventually([&] { return status().dropped[static_cast<size_t>(cm::DropReason::kWrongPeer)] == 1; }));
  EXPECT_FALSE(program_->poll_event());
  peer_->say_as_agent(dreq, 2);
  EXPECT_EQ(program_->expect(RDMA_CM_EVENT_DISCONNECTED), passive);
}

TEST_F(CmGsi, RejectsWhatComesWithoutAddresses) {
  listen();
  cm::Req req = request_for(kPort, "hello");
  req.private_data[0] = 0x30;  // an unknown version
  peer_->say(req, 1);
  EXPECT_TRUE(peer_->expect<cm::Rej>().is(cm::RejReason::kConsumer));
  req = request_for(kPort, "hello");
  req.primary.remote_gid = CmPeer::address(77);  // no address of the agent's host
  peer_->say(req, 1);
  EXPECT_TRUE(peer_->expect<cm::Rej>().is(cm::RejReason::kInvalidGid));
  EXPECT_FALSE(program_->poll_event());
}

// A program that listens only on an address of this host must not be reachable from outside. A peer must not
// pass for another host: addresses in the private data must agree with the path.
TEST_F(CmGsi, RejectsWhatNamesOtherAddressesThanItsPath) {
  const uint32_t inner = program_->create();
  ASSERT_EQ(program_->bind(inner, address("127.0.0.1", kPort)), 0);
  ASSERT_EQ(program_->listen(inner), 0);
  const uint8_t loopback[] = {127, 0, 0, 1};
  cm::Req req = request_for(kPort, "hello");
  cm::IpHeader header;
  header.source = CmPeer::address(2);
  header.destination = roce::Address::from_ipv4(loopback);
  auto head = cm::encode_ip_header(header);
  std::memcpy(req.private_data.data(), head.data(), head.size());
  peer_->say(req, 1);
  EXPECT_TRUE(peer_->expect<cm::Rej>().is(cm::RejReason::kInvalidServiceId));

  ASSERT_EQ(program_->destroy(inner), 0);
  listen();
  header.source = CmPeer::address(77);
  header.destination = CmPeer::address(1);
  head = cm::encode_ip_header(header);
  std::memcpy(req.private_data.data(), head.data(), head.size());
  peer_->say(req, 2);
  EXPECT_TRUE(peer_->expect<cm::Rej>().is(cm::RejReason::kConsumer));
  EXPECT_FALSE(program_->poll_event());
}

TEST_F(CmGsi, TellsThePeersOfAProgramThatDied) {
  establish();
  program_->hang_up();
  const TimePoint begin = MonotonicClock::now();
  const auto dreq = peer_->expect<cm::Dreq>();
  EXPECT_LT(MonotonicClock::now() - begin, std::chrono::seconds(1));
  EXPECT_EQ(dreq.remote_id, kPeersId);
  EXPECT_EQ(dreq.local_id, rep_.local_id);
  EXPECT_EQ(dreq.remote_qpn, kPeersQpn);
  // The DREQ is repeated until it is answered.
  EXPECT_EQ(peer_->expect<cm::Dreq>(), dreq);
  EXPECT_EQ(peer_->expect<cm::Dreq>(), dreq);
  peer_->say(cm::Drep{kPeersId, rep_.local_id, {}}, peer_->transaction());
  while (peer_->hear(300)) {  // drops the messages under way
  }
  EXPECT_EQ(status().identifiers, 0u);
}

TEST_F(CmGsi, DisconnectsAsThePeerWants) {
  const uint32_t passive = establish();
  peer_->say(cm::Dreq{kPeersId, rep_.local_id, 0x99, {}}, 2);
  EXPECT_EQ(program_->expect(RDMA_CM_EVENT_DISCONNECTED), passive);
  ASSERT_EQ(program_->disconnect(passive), 0);
  EXPECT_EQ(peer_->expect<cm::Drep>().remote_id, kPeersId);
}

TEST_F(CmGsi, ConnectsToAnotherHost) {
  const uint32_t active = program_->resolve(address("10.9.0.2", kPort));
  ASSERT_EQ(program_->connect(active, parameters("hello", 0x77)), 0);
  const auto req = peer_->expect<cm::Req>();
  EXPECT_EQ(req.local_qpn, 0x77u);
  EXPECT_EQ(req.primary.local_gid, CmPeer::address(1));
  EXPECT_EQ(req.primary.remote_gid, CmPeer::address(2));
  EXPECT_EQ(req.primary.hop_limit, 64);
  EXPECT_EQ(req.path_mtu, IBV_MTU_1024);
  EXPECT_EQ(req.service_id, cm::service_id(cm::PortSpace::kTcp, kPort));
  const auto header = cm::decode_ip_header(std::as_bytes(std::span(req.private_data)));
  ASSERT_TRUE(header);
  EXPECT_EQ(header->destination, CmPeer::address(2));
  cm::Rej rej;
  rej.local_id = kPeersId;
  rej.remote_id = req.local_id;
  rej.reason = 28;
  peer_->say(rej, peer_->transaction());
  EXPECT_EQ(program_->expect(RDMA_CM_EVENT_REJECTED, 28), active);
}

TEST_F(CmGsi, SaysThatItDoesNotServeOtherClasses) {
  peer_->send(mad_of(0x01, 0x05));  // a trap, which gets no answer
  peer_->send(mad_of(0x06, 0x01));  // a Get of device management
  const auto answer = peer_->hear();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->bytes[1], std::byte{0x06});
  EXPECT_EQ(answer->bytes[3], std::byte{0x81});
  EXPECT_EQ(answer->bytes[5], std::byte{0x0c});
  EXPECT_EQ(answer->bytes[15], std::byte{0x77});
  EXPECT_FALSE(peer_->hear(100));
  EXPECT_EQ(status().unknown_class, 2u);
}

// Other datagrams can fill their own socket only.
TEST_F(CmGsi, SendsConnectionManagementBySocketsOfItsOwn) {
  peer_->send(mad_of(0x31, 0x01));
  ASSERT_TRUE(peer_->hear());
  const uint16_t others_port = peer_->last_source_port();
  EXPECT_NE(others_port, roce::kUdpPort);
  peer_->say(request_for(kPort, "hello"), 1);
  peer_->expect<cm::Rej>();
  EXPECT_EQ(peer_->last_source_port(), roce::kUdpPort);
}

TEST_F(CmGsi, CountsForOtherHosts) {
  cm::Mad asked = mad_of(0x04, 0x01);  // PerfGet of ClassPortInfo
  asked.bytes[2] = asked.bytes[17] = std::byte{0x01};
  peer_->send(asked);
  const auto answer = peer_->hear();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->bytes[3], std::byte{0x81});
  EXPECT_EQ(answer->bytes[5], std::byte{0});
  EXPECT_EQ(answer->bytes[15], std::byte{0x77});
  EXPECT_EQ(answer->bytes[64], std::byte{0x01});
}

TEST_F(CmGsi, HearsNothingUnderAnotherQkey) {
  peer_->send(cm::encode(request_for(kPort, "hello"), 1), 0x11111111);
  ASSERT_TRUE(eventually([&] { return status().bad_qkey == 1; }));
  EXPECT_FALSE(peer_->hear(50));
}

TEST_F(CmGsi, CountsWhatIsMalformed) {
  cm::Mad mad = cm::encode(request_for(kPort, "hello"), 1);
  mad.bytes[17] = std::byte{0x99};  // an unknown attribute
  peer_->send(mad);
  ASSERT_TRUE(eventually([&] {
    const protocol::CmStatus counted = status();
    return counted.dropped[static_cast<size_t>(cm::DropReason::kNotOurs)] == 1;
  }));
}

TEST_F(CmGsi, AFloodOfRequestsIsBoundedByTheBacklog) {
  constexpr uint32_t kBacklog = 5;
  const uint32_t listener = program_->create();
  ASSERT_EQ(program_->bind(listener, address("10.9.0.1", kPort)), 0);
  ASSERT_EQ(program_->listen(listener, kBacklog), 0);
  for (uint32_t sent = 0; sent < 200;) {
    // At most what the agent's socket holds if the agent gets no processor for a while.
    for (const uint32_t end = sent + 20; sent < end; ++sent) {
      cm::Req req = request_for(kPort, "flood");
      req.local_id = 1000 + sent;
      req.local_qpn = 1000 + sent;
      peer_->say(req, sent);
    }
    ASSERT_TRUE(eventually([&] {
      return status().dropped[static_cast<size_t>(cm::DropReason::kNotAdmitted)] == sent - kBacklog;
    })) << "after "
        << sent;
  }
  EXPECT_EQ(status().identifiers, 6u);
}

// Otherwise one silent host, in whose name requests arrive, keeps the agent from answering all others.
class GsiPortBesideASilentHost : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!net::testing::can_make_namespaces()) GTEST_SKIP() << "network namespaces need root";
    hosts_.emplace(1500);
    {
      const net::testing::InNamespace there(hosts_->b);
      auto socket = net::open_receive_socket(roce::kUdpPort);
      ASSERT_TRUE(socket);
      auto opened = net::UdpPort::create(std::move(*socket), {});
      ASSERT_TRUE(opened);
      peer_ = std::move(*opened);
    }
    here_.emplace(hosts_->a);
    // The kernel must not give up, which would empty the socket.
    net::testing::run("sysctl -qw net.ipv4.neigh.veth-a.retrans_time_ms=60000");
    ASSERT_TRUE(net::check_route(to_peer_, std::chrono::minutes(1)));
    auto socket = net::open_receive_socket(roce::kUdpPort);
    ASSERT_TRUE(socket);
    socket_ = std::move(*socket);
    gsi_.emplace(loop_, [](ConstBytes, const cm::Arrival&) {});
    ASSERT_TRUE(gsi_->open(socket_.get(), roce::kUdpPort));
    // Less than what the kernel keeps for a neighbour.
    ASSERT_TRUE(set_option(socket_.get(), SOL_SOCKET, SO_SNDBUF, 64 << 10));
  }

  void send(const roce::Path& path) {
    gsi_->send(mad_, path);
    gsi_->flush();
  }
  void send_many_to_nobody() {
    for (int i = 0; i < 1000; ++i) send(to_nobody_);
  }
  bool reaches_peer() {
    send(to_peer_);
    net::testing::Collector collector;
    return collector.receive(*peer_, 1);
  }

  const roce::Path to_peer_ = net::testing::path("10.47.91.1", "10.47.91.2");
  const roce::Path to_nobody_ = net::testing::path("10.47.91.1", "10.47.91.77");
  const cm::Mad mad_ = cm::encode(request_for(kPort, "hello"), 1);
  std::optional<net::testing::TwoHosts> hosts_;
  std::unique_ptr<net::UdpPort> peer_;
  std::optional<net::testing::InNamespace> here_;
  UniqueFd socket_;
  agent::EventLoop loop_;
  std::optional<agent::GsiPort> gsi_;
};

TEST_F(GsiPortBesideASilentHost, AnswersOthers) {
  send_many_to_nobody();
  EXPECT_TRUE(reaches_peer());
}

TEST_F(GsiPortBesideASilentHost, AnswersOthersWhereAUserHasTakenAllPorts) {
  const auto of_roce = net::testing::TakenPorts::of_roce();
  const auto ephemeral = net::testing::TakenPorts::ephemeral();
  send_many_to_nobody();
  EXPECT_TRUE(reaches_peer());
}

TEST_F(GsiPortBesideASilentHost, KeepsRoomForOthersWhileItCannotAsk) {
  rlimit limit;
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit none{0, limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  send_many_to_nobody();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_TRUE(reaches_peer());
}

class CmIdleAgent : public test::NamespaceTest {};

TEST_F(CmIdleAgent, EndsThoughConnectionsWaitForTheirLastPackets) {
  test::AgentProcess agent({"--idle-timeout=1"});
  {
    CmProgram server;
    CmProgram client;
    ASSERT_TRUE(server.connected() && client.connected());
    const uint32_t listener = server.create();
    ASSERT_EQ(server.bind(listener, address("0.0.0.0", kPort)), 0);
    ASSERT_EQ(server.listen(listener), 0);
    const uint32_t active = client.resolve(address("127.0.0.1", kPort));
    ASSERT_EQ(client.connect(active, parameters("")), 0);
    const uint32_t passive = server.expect(RDMA_CM_EVENT_CONNECT_REQUEST);
    ASSERT_EQ(server.accept(passive, parameters("")), 0);
    client.expect(RDMA_CM_EVENT_CONNECT_RESPONSE);
    ASSERT_EQ(client.accept(active), 0);
    server.expect(RDMA_CM_EVENT_ESTABLISHED);
  }
  // TIMEWAIT would take longer than this.
  EXPECT_TRUE(eventually([&] {
    siginfo_t ended{};
    const auto pid = static_cast<id_t>(agent.pid());
    return ::waitid(P_PID, pid, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid == agent.pid();
  }));
}

}  // namespace
}  // namespace verbena
