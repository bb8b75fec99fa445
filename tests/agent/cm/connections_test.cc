// SPDX-License-Identifier: Apache-2.0
// Two programs that connect through the agent.
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/agent_process.h"
#include "agent/cm/cleanup.h"
#include "agent/cm/early_messages.h"
#include "agent/cm/gsi_port.h"
#include "agent/cm/program.h"
#include "agent/network_namespace.h"
#include "control/client/client.h"
#include "control/client/command_client.h"
#include "management/cm/messages.h"
#include "management/cm/parameters.h"
#include "wire/roce/qpn.h"

namespace verbena {
namespace {

using protocol::CmEvent;
using test::address;
using test::CmProgram;
using test::parameters;
using test::text_of;

constexpr uint16_t kPort = 7471;

class CmConnections : public test::NamespaceTest {
 protected:
  void SetUp() override {
    NamespaceTest::SetUp();
    if (IsSkipped()) return;
    ASSERT_TRUE(test::shell("ip addr add 10.7.0.1/32 dev lo"));  // an address of a device, unlike 127.0.0.1
    agent_.emplace();
    server_.emplace();
    client_.emplace();
    ASSERT_TRUE(server_->connected() && client_->connected());
  }

  uint32_t listen(const protocol::CmAddress& at, uint32_t backlog = 0) {
    const uint32_t listener = server_->create();
    EXPECT_EQ(server_->bind(listener, at), 0);
    EXPECT_EQ(server_->listen(listener, backlog), 0);
    return listener;
  }
  // Establishes a connection. Returns the client's identifier and the server's.
  std::pair<uint32_t, uint32_t> establish(const protocol::CmAddress& to) {
    const uint32_t active = client_->resolve(to);
    EXPECT_EQ(client_->connect(active, parameters("hello")), 0);
    const uint32_t passive = server_->expect(RDMA_CM_EVENT_CONNECT_REQUEST);
    EXPECT_EQ(server_->accept(passive, parameters("welcome", 0x815)), 0);
    client_->expect(RDMA_CM_EVENT_CONNECT_RESPONSE);
    EXPECT_EQ(client_->accept(active), 0);
    EXPECT_EQ(server_->expect(RDMA_CM_EVENT_ESTABLISHED), passive);
    return {active, passive};
  }

  std::optional<test::AgentProcess> agent_;
  std::optional<CmProgram> server_;
  std::optional<CmProgram> client_;
};

TEST_F(CmConnections, AreEstablishedWithBothSidesParameters) {
  const uint32_t listener = listen(address("0.0.0.0", kPort));
  const uint32_t active = client_->resolve(address("127.0.0.1", kPort));
  ASSERT_EQ(client_->connect(active, parameters("hello", 0x4711)), 0);

  const CmEvent request = server_->event();
  EXPECT_EQ(request.type, static_cast<uint32_t>(RDMA_CM_EVENT_CONNECT_REQUEST));
  EXPECT_EQ(request.listener, listener);
  EXPECT_NE(request.id & protocol::kCmAgentsNumber, 0u);
  EXPECT_EQ(text_of(request), "hello");
  EXPECT_EQ(request.parameters.private_length, 56);
  EXPECT_EQ(request.parameters.qpn, 0x4711u);
  EXPECT_EQ(request.parameters.responder_resources, 2);
  EXPECT_EQ(request.parameters.initiator_depth, 4);
  EXPECT_EQ(request.connection.remote_qpn, 0x4711u);
  EXPECT_STREQ(request.route.link, "rxe_lo");
  EXPECT_EQ(ntohs(request.route.source.port), kPort);
  EXPECT_NE(request.route.destination.port, 0);

  protocol::ConnectionParameters answer = parameters("welcome", 0x815);
  answer.responder_resources = 1;
  ASSERT_EQ(server_->accept(request.id, answer), 0);
  const CmEvent response = client_->event();
  EXPECT_EQ(response.type, static_cast<uint32_t>(RDMA_CM_EVENT_CONNECT_RESPONSE));
  EXPECT_EQ(response.id, active);
  EXPECT_EQ(text_of(response), "welcome");
  EXPECT_EQ(response.parameters.private_length, 196);
  EXPECT_EQ(response.parameters.initiator_depth, 1);
  EXPECT_EQ(response.connection.remote_qpn, 0x815u);
  EXPECT_EQ(response.connection.local_qpn, 0x4711u);
  EXPECT_EQ(response.connection.is_active, 1);
  EXPECT_EQ(response.connection.send_psn, response.connection.send_psn & 0xffffff);

  ASSERT_EQ(client_->accept(active), 0);
  const CmEvent established = server_->event();
  EXPECT_EQ(established.type, static_cast<uint32_t>(RDMA_CM_EVENT_ESTABLISHED));
  EXPECT_EQ(established.id, request.id);
  EXPECT_EQ(established.connection.send_psn, response.connection.receive_psn);
  EXPECT_EQ(established.connection.receive_psn, response.connection.send_psn);
}

TEST_F(CmConnections, AreEndedByEitherSide) {
  listen(address("0.0.0.0", kPort));
  for (const bool by_client : {true, false}) {
    const auto [active, passive] = establish(address("127.0.0.1", kPort));
    CmProgram& first = by_client ? *client_ : *server_;
    CmProgram& second = by_client ? *server_ : *client_;
    ASSERT_EQ(first.disconnect(by_client ? active : passive), 0);
    second.expect(RDMA_CM_EVENT_DISCONNECTED);
    ASSERT_EQ(second.disconnect(by_client ? passive : active), 0);
    first.expect(RDMA_CM_EVENT_DISCONNECTED);
    EXPECT_EQ(client_->destroy(active), 0);
    // Address, route, response, disconnect: from this number a program knows whether it has read all events.
    EXPECT_EQ(client_->events_of_destroyed(), 4u);
    EXPECT_EQ(server_->destroy(passive), 0);
    // Established and disconnect. The request was an event of its listener.
    EXPECT_EQ(server_->events_of_destroyed(), 2u);
  }
}

TEST_F(CmConnections, AreRefusedByTheListenersProgram) {
  listen(address("0.0.0.0", kPort));
  const uint32_t active = client_->resolve(address("127.0.0.1", kPort));
  ASSERT_EQ(client_->connect(active, parameters("hello")), 0);
  const uint32_t passive = server_->expect(RDMA_CM_EVENT_CONNECT_REQUEST);
  ASSERT_EQ(server_->reject(passive, "not now"), 0);
  const CmEvent rejected = client_->event();
  EXPECT_EQ(rejected.type, static_cast<uint32_t>(RDMA_CM_EVENT_REJECTED));
  EXPECT_EQ(rejected.status, 28);
  EXPECT_EQ(text_of(rejected), "not now");
  EXPECT_EQ(rejected.parameters.private_length, 148);
}

TEST_F(CmConnections, AreRefusedWhereNobodyListens) {
  const uint32_t active = client_->resolve(address("127.0.0.1", kPort));
  ASSERT_EQ(client_->connect(active, parameters("hello")), 0);
  client_->expect(RDMA_CM_EVENT_REJECTED, 8);
}

// perftest's -R does this. If its server gets no processor for a while, the client is far ahead of it.
TEST_F(CmConnections, WaitForAListenerThatHasEndedAndMayComeAgain) {
  ASSERT_EQ(server_->destroy(listen(address("0.0.0.0", kPort))), 0);
  const uint32_t active = client_->resolve(address("127.0.0.1", kPort));
  ASSERT_EQ(client_->connect(active, parameters("hello")), 0);
  std::this_thread::sleep_for(2 * agent::EarlyMessages::kPatience);
  listen(address("0.0.0.0", kPort));
  server_->expect(RDMA_CM_EVENT_CONNECT_REQUEST);
}

TEST_F(CmConnections, OfWhoHasGivenUpAreNotOfferedToAListenerThatComesLate) {
  ASSERT_EQ(server_->destroy(listen(address("0.0.0.0", kPort))), 0);
  const uint32_t gone = client_->resolve(address("127.0.0.1", kPort));
  ASSERT_EQ(client_->connect(gone, parameters("gone")), 0);
  ASSERT_EQ(client_->destroy(gone), 0);
  const auto admin = control::Admin::connect({.start_agent = false, .agent_program = {}});
  ASSERT_TRUE(admin);
  ASSERT_TRUE(test::eventually([&] {
    const auto status = (*admin)->status();
    return status && status->connection_management.received[static_cast<size_t>(cm::MessageType::kRej)] == 1;
  }));
  const uint32_t active = client_->resolve(address("127.0.0.1", kPort));
  ASSERT_EQ(client_->connect(active, parameters("hello")), 0);
  listen(address("0.0.0.0", kPort));
  const CmEvent request = server_->event();
  EXPECT_EQ(request.type, static_cast<uint32_t>(RDMA_CM_EVENT_CONNECT_REQUEST));
  EXPECT_EQ(text_of(request), "hello");
}

TEST_F(CmConnections, AreRefusedWhenAListenerThatHasEndedDoesNotComeAgain) {
  const uint32_t listener = listen(address("0.0.0.0", kPort));
  const TimePoint ended = MonotonicClock::now();
  ASSERT_EQ(server_->destroy(listener), 0);
  const uint32_t active = client_->resolve(address("127.0.0.1", kPort));
  ASSERT_EQ(client_->connect(active, parameters("hello")), 0);
  client_->expect(RDMA_CM_EVENT_REJECTED, 8);
  EXPECT_GE(MonotonicClock::now() - ended, agent::EndedListeners::kRemembered);
}

TEST_F(CmConnections, AreRefusedWhereSomebodyListensForOthersAlone) {
  listen(address("10.7.0.1", kPort));
  const uint32_t active = client_->resolve(address("127.0.0.1", kPort));
  ASSERT_EQ(client_->connect(active, parameters("hello")), 0);
  client_->expect(RDMA_CM_EVENT_REJECTED, 28);  // as the kernel does: the service exists
  const uint32_t other = client_->resolve(address("10.7.0.1", kPort));
  ASSERT_EQ(client_->connect(other, parameters("hello")), 0);
  server_->expect(RDMA_CM_EVENT_CONNECT_REQUEST);
}

// The caller may name any address of this host.
TEST_F(CmConnections, ReachAListenerOnLoopback) {
  listen(address("127.0.0.1", kPort));
  establish(address("127.0.0.1", kPort));
  establish(address("10.7.0.1", kPort));
}

TEST_F(CmConnections, AreRefusedToAnotherTypeOfQp) {
  listen(address("0.0.0.0", kPort));  // an RC listener
  const uint32_t active = client_->resolve(address("127.0.0.1", kPort), RDMA_PS_IB, IBV_QPT_UC);
  ASSERT_EQ(client_->connect(active, parameters("hello")), 0);
  client_->expect(RDMA_CM_EVENT_REJECTED, 8);  // RDMA_PS_IB is another port space
  const uint32_t listener = server_->create(RDMA_PS_IB, IBV_QPT_RC);
  ASSERT_EQ(server_->bind(listener, address("0.0.0.0", kPort)), 0);
  ASSERT_EQ(server_->listen(listener), 0);
  const uint32_t again = client_->resolve(address("127.0.0.1", kPort), RDMA_PS_IB, IBV_QPT_UC);
  ASSERT_EQ(client_->connect(again, parameters("hello")), 0);
  client_->expect(RDMA_CM_EVENT_REJECTED, 28);
}

TEST_F(CmConnections, WaitWhileTheBacklogIsFull) {
  listen(address("0.0.0.0", kPort), 2);
  std::vector<uint32_t> active;
  for (int i = 0; i < 3; ++i) {
    active.push_back(client_->resolve(address("127.0.0.1", kPort)));
    ASSERT_EQ(client_->connect(active.back(), parameters(std::to_string(i))), 0);
  }
  const auto is_dropped = [&] {
    return client_->status().dropped[static_cast<size_t>(cm::DropReason::kNotAdmitted)] > 0;
  };
  const TimePoint deadline = MonotonicClock::now() + std::chrono::seconds(5);
  while (!is_dropped() && MonotonicClock::now() < deadline) std::this_thread::yield();
  // Requests that the application has read from the channel no longer count.
  EXPECT_EQ(text_of(server_->event()), "0");
  EXPECT_EQ(text_of(server_->event()), "1");
  EXPECT_FALSE(server_->poll_event());
  EXPECT_FALSE(client_->poll_event());  // the third was not refused: it is repeated later
  const uint32_t fourth = client_->resolve(address("127.0.0.1", kPort));
  ASSERT_EQ(client_->connect(fourth, parameters("3")), 0);
  EXPECT_EQ(text_of(server_->event()), "3");
}

TEST_F(CmConnections, OfAnUnansweredRequestTheClientHearsWhenItsListenerGoes) {
  listen(address("0.0.0.0", kPort));
  const uint32_t active = client_->resolve(address("127.0.0.1", kPort));
  ASSERT_EQ(client_->connect(active, parameters("hello")), 0);
  const uint32_t passive = server_->expect(RDMA_CM_EVENT_CONNECT_REQUEST);
  ASSERT_EQ(server_->destroy(passive), 0);
  EXPECT_EQ(client_->expect(RDMA_CM_EVENT_REJECTED, 28), active);
}

TEST_F(CmConnections, AreEstablishedByTheFirstMessageWhenTheRtuIsLate) {
  listen(address("0.0.0.0", kPort));
  const uint32_t active = client_->resolve(address("127.0.0.1", kPort));
  ASSERT_EQ(client_->connect(active, parameters("hello")), 0);
  const uint32_t passive = server_->expect(RDMA_CM_EVENT_CONNECT_REQUEST);
  ASSERT_EQ(server_->accept(passive, parameters("")), 0);
  client_->expect(RDMA_CM_EVENT_CONNECT_RESPONSE);
  ASSERT_EQ(server_->establish(passive), 0);
  EXPECT_EQ(server_->expect(RDMA_CM_EVENT_ESTABLISHED), passive);
  EXPECT_EQ(server_->establish(passive), EISCONN);
  ASSERT_EQ(client_->accept(active), 0);
  EXPECT_FALSE(server_->poll_event(CmProgram::kChannel, 50));  // the RTU causes no event
}

TEST_F(CmConnections, AnotherUserNamesOnlyQpsThatAreLentToThatUser) {
  if (::getuid() != 0 || ::setegid(0) != 0) GTEST_SKIP() << "needs root";
  listen(address("0.0.0.0", kPort));
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(99);
    CmProgram other;
    if (!other.connected()) ::_exit(98);
    const uint32_t id = other.resolve(address("127.0.0.1", kPort));
    if (other.connect(id, parameters("", 0x4711)) != EPERM) ::_exit(1);
    const auto client = control::Client::connect({.start_agent = false, .agent_program = {}});
    const auto slot = client ? (*client)->take_slot() : Result<control::Slot>(fail(ENOTCONN));
    if (!slot) ::_exit(2);
    const uint32_t own = roce::Qpn::in_slot(slot->index, 5).value();
    ::_exit(other.connect(id, parameters("", own)) == 0 ? 0 : 3);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(CmConnections, EndWithTheProcessThatHasThem) {
  listen(address("0.0.0.0", kPort));
  const auto [active, passive] = establish(address("127.0.0.1", kPort));
  server_->hang_up();
  const TimePoint begin = MonotonicClock::now();
  EXPECT_EQ(client_->expect(RDMA_CM_EVENT_DISCONNECTED), active);
  EXPECT_LT(MonotonicClock::now() - begin, std::chrono::seconds(1));
  // The identifier's port is free again.
  CmProgram other;
  const uint32_t listener = other.create();
  EXPECT_EQ(other.bind(listener, address("0.0.0.0", kPort)), 0);
}

TEST_F(CmConnections, InTheMakingEndWithTheProcessToo) {
  listen(address("0.0.0.0", kPort));
  const uint32_t unanswered = client_->resolve(address("127.0.0.1", kPort));
  ASSERT_EQ(client_->connect(unanswered, parameters("hello")), 0);
  server_->expect(RDMA_CM_EVENT_CONNECT_REQUEST);
  const uint32_t responded = client_->resolve(address("127.0.0.1", kPort));
  ASSERT_EQ(client_->connect(responded, parameters("hello")), 0);
  ASSERT_EQ(server_->accept(server_->expect(RDMA_CM_EVENT_CONNECT_REQUEST), parameters("")), 0);
  EXPECT_EQ(client_->expect(RDMA_CM_EVENT_CONNECT_RESPONSE), responded);
  server_->hang_up();
  const uint32_t first = client_->expect(RDMA_CM_EVENT_REJECTED, 28);
  const uint32_t second = client_->expect(RDMA_CM_EVENT_REJECTED, 28);
  EXPECT_EQ(std::min(first, second), std::min(unanswered, responded));
  EXPECT_EQ(std::max(first, second), std::max(unanswered, responded));
}

TEST_F(CmConnections, OfManyIdentifiersNoneIsLeftOfAClosedChannel) {
  ASSERT_EQ(client_->open_channel(7), 0);
  const uint32_t bound = client_->create(RDMA_PS_TCP, IBV_QPT_RC, 7);
  ASSERT_EQ(client_->bind(bound, address("0.0.0.0", kPort)), 0);
  EXPECT_EQ(client_->open_channel(7), EEXIST);
  ASSERT_EQ(client_->close_channel(7), 0);
  EXPECT_EQ(client_->destroy(bound), ENOENT);
  EXPECT_EQ(client_->close_channel(7), ENOENT);
  listen(address("0.0.0.0", kPort));
}

TEST_F(CmConnections, GoOnOnAnotherChannel) {
  listen(address("0.0.0.0", kPort));
  const auto [active, passive] = establish(address("127.0.0.1", kPort));
  ASSERT_EQ(client_->open_channel(9), 0);
  ASSERT_EQ(client_->migrate(active, 9), 0);
  EXPECT_EQ(client_->migrate(active, 10), ENOENT);
  ASSERT_EQ(server_->disconnect(passive), 0);
  EXPECT_EQ(client_->expect(RDMA_CM_EVENT_DISCONNECTED, 0, 9), active);
}

TEST_F(CmConnections, KeepEventsThatTheSocketDoesNotTake) {
  listen(address("0.0.0.0", kPort));
  constexpr int kMany = 600;  // a Unix socket holds 160 to 330
  for (int i = 0; i < kMany; ++i) {
    const uint32_t id = client_->create();
    ASSERT_EQ(client_->resolve_address(id, address("127.0.0.1", kPort)), 0);
  }
  for (int i = 1; i <= kMany; ++i)
    ASSERT_EQ(client_->expect(RDMA_CM_EVENT_ADDR_RESOLVED), static_cast<uint32_t>(i));
}

// Nor can a program exceed the limit by using several channels.
TEST_F(CmConnections, EndWhereAProgramLetsTooManyEventsWait) {
  constexpr uint32_t kChannels = 4, kGroups = 4096;  // 4096 groups is the limit of one identifier
  std::vector<uint32_t> ids;
  for (uint32_t i = 0; i < 5 * kChannels; ++i) {
    const uint32_t channel = 10 + i % kChannels;
    if (i < kChannels) {
      ASSERT_EQ(client_->open_channel(channel), 0);
    }
    ids.push_back(client_->create(RDMA_PS_UDP, IBV_QPT_UD, channel));
    ASSERT_EQ(client_->bind(ids.back(), address("10.7.0.1")), 0);
  }
  int error = 0;
  uint32_t joined = 0;
  for (uint32_t i = 0; error == 0 && i < ids.size() * kGroups; ++i) {
    error = client_->join(ids[i % ids.size()], i + 1, address("239.1.2.3"));
    joined += error == 0 ? 1 : 0;
  }
  EXPECT_TRUE(error == ECONNRESET || error == EPIPE) << error;  // depends on which end notices first
  EXPECT_LT(joined, 5 * 65536 / 4);
  CmProgram other;
  EXPECT_EQ(other.create(), 1u);
}

TEST_F(CmConnections, AreRefusedInStatesInWhichTheyMakeNoSense) {
  const uint32_t id = client_->create();
  EXPECT_EQ(client_->connect(id, parameters("")), EINVAL);
  EXPECT_EQ(client_->accept(id), EINVAL);
  EXPECT_EQ(client_->reject(id, ""), EINVAL);
  EXPECT_EQ(client_->disconnect(id), EINVAL);
  EXPECT_EQ(client_->establish(id), EINVAL);
  EXPECT_EQ(client_->create(id, RDMA_PS_TCP, IBV_QPT_RC, CmProgram::kChannel), EINVAL);
  EXPECT_EQ(client_->create(77, 0x4711, IBV_QPT_RC, CmProgram::kChannel), EINVAL);
  EXPECT_EQ(client_->create(77, RDMA_PS_TCP, IBV_QPT_RC, 4711), ENOENT);
  EXPECT_EQ(client_->create(protocol::kCmAgentsNumber | 7, RDMA_PS_TCP, IBV_QPT_RC, CmProgram::kChannel),
            EINVAL);
  listen(address("0.0.0.0", kPort));
  const uint32_t active = client_->resolve(address("127.0.0.1", kPort));
  EXPECT_EQ(client_->connect(active, parameters(std::string(57, 'x'))), EINVAL);
  EXPECT_EQ(client_->connect(active, parameters("", 0x1000000)), EINVAL);
  EXPECT_EQ(client_->connect(active, parameters(std::string(56, 'x'))), 0);
  EXPECT_EQ(client_->connect(active, parameters("")), EINVAL);
  const uint32_t passive = server_->expect(RDMA_CM_EVENT_CONNECT_REQUEST);
  EXPECT_EQ(server_->reject(passive, std::string(149, 'x')), EINVAL);
  EXPECT_EQ(server_->accept(passive, parameters(std::string(196, 'x'))), 0);
  EXPECT_EQ(text_of(client_->event()), std::string(196, 'x'));
}

// As in the kernel's rdma_accept(): the peer gets a rejection, and the identifier can no longer be answered.
TEST_F(CmConnections, AreRejectedWhenTheyCannotBeAccepted) {
  listen(address("0.0.0.0", kPort));
  const uint32_t active = client_->resolve(address("127.0.0.1", kPort));
  ASSERT_EQ(client_->connect(active, parameters("hello")), 0);
  const uint32_t passive = server_->expect(RDMA_CM_EVENT_CONNECT_REQUEST);
  EXPECT_EQ(server_->accept(passive, parameters(std::string(197, 'x'))), EINVAL);
  EXPECT_EQ(client_->expect(RDMA_CM_EVENT_REJECTED, 28), active);
  EXPECT_EQ(server_->accept(passive, parameters("welcome")), EINVAL);
  EXPECT_EQ(server_->reject(passive, ""), EINVAL);
  EXPECT_FALSE(server_->poll_event());
}

class CmDatagrams : public CmConnections {
 protected:
  uint32_t listen_for_datagrams() {
    const uint32_t listener = server_->create(RDMA_PS_UDP, IBV_QPT_UD);
    EXPECT_EQ(server_->bind(listener, address("0.0.0.0", kPort)), 0);
    EXPECT_EQ(server_->listen(listener), 0);
    return listener;
  }
};

TEST_F(CmDatagrams, AServiceTellsItsQpAndQkey) {
  const uint32_t listener = listen_for_datagrams();
  const uint32_t active = client_->resolve(address("127.0.0.1", kPort), RDMA_PS_UDP, IBV_QPT_UD);
  ASSERT_EQ(client_->connect(active, parameters("hello")), 0);
  const CmEvent request = server_->event();
  EXPECT_EQ(request.type, static_cast<uint32_t>(RDMA_CM_EVENT_CONNECT_REQUEST));
  EXPECT_EQ(request.listener, listener);
  EXPECT_EQ(request.parameters.private_length, 180);
  EXPECT_EQ(text_of(request), "hello");
  ASSERT_EQ(server_->accept(request.id, parameters("welcome", 0x99)), 0);
  const CmEvent established = client_->event();
  EXPECT_EQ(established.type, static_cast<uint32_t>(RDMA_CM_EVENT_ESTABLISHED));
  EXPECT_EQ(established.status, 0);
  EXPECT_EQ(established.parameters.qpn, 0x99u);
  EXPECT_EQ(established.parameters.qkey, static_cast<uint32_t>(RDMA_UDP_QKEY));
  EXPECT_EQ(established.parameters.private_length, 136);
  EXPECT_EQ(text_of(established), "welcome");
  EXPECT_STREQ(established.route.link, "rxe_lo");
}

TEST_F(CmDatagrams, AServiceRefuses) {
  listen_for_datagrams();
  const uint32_t active = client_->resolve(address("127.0.0.1", kPort), RDMA_PS_UDP, IBV_QPT_UD);
  ASSERT_EQ(client_->connect(active, parameters("hello")), 0);
  ASSERT_EQ(server_->reject(server_->expect(RDMA_CM_EVENT_CONNECT_REQUEST), "no"), 0);
  client_->expect(RDMA_CM_EVENT_UNREACHABLE, 2);
}

TEST_F(CmDatagrams, AreRejectedWhenTheyCannotBeAnswered) {
  listen_for_datagrams();
  const uint32_t active = client_->resolve(address("127.0.0.1", kPort), RDMA_PS_UDP, IBV_QPT_UD);
  ASSERT_EQ(client_->connect(active, parameters("hello")), 0);
  const uint32_t passive = server_->expect(RDMA_CM_EVENT_CONNECT_REQUEST);
  EXPECT_EQ(server_->accept(passive, parameters(std::string(137, 'x'))), EINVAL);
  client_->expect(RDMA_CM_EVENT_UNREACHABLE, 2);
}

TEST_F(CmDatagrams, WithoutAServiceTheProgramHearsThatItIsUnsupported) {
  const uint32_t active = client_->resolve(address("127.0.0.1", kPort), RDMA_PS_UDP, IBV_QPT_UD);
  ASSERT_EQ(client_->connect(active, parameters("hello")), 0);
  client_->expect(RDMA_CM_EVENT_UNREACHABLE, 1);
}

TEST_F(CmDatagrams, WaitForAServiceOnAPortThatItsProgramTookConnectionsOn) {
  ASSERT_EQ(server_->destroy(listen(address("0.0.0.0", kPort))), 0);
  const uint32_t active = client_->resolve(address("127.0.0.1", kPort), RDMA_PS_UDP, IBV_QPT_UD);
  ASSERT_EQ(client_->connect(active, parameters("hello")), 0);
  std::this_thread::sleep_for(2 * agent::EarlyMessages::kPatience);
  listen_for_datagrams();
  server_->expect(RDMA_CM_EVENT_CONNECT_REQUEST);
}

TEST_F(CmDatagrams, GroupsAreJoinedByTheirIpAddress) {
  const uint32_t id = client_->create(RDMA_PS_UDP, IBV_QPT_UD);
  EXPECT_EQ(client_->join(id, 1, address("239.1.2.3")), EINVAL);  // no device is named
  ASSERT_EQ(client_->bind(id, address("127.0.0.1")), 0);
  EXPECT_EQ(client_->join(id, 1, address("239.1.2.3")), EINVAL);  // loopback names no device either
  ASSERT_EQ(client_->resolve_address(id, address("127.0.0.1", kPort)), 0);
  client_->expect(RDMA_CM_EVENT_ADDR_RESOLVED);
  ASSERT_EQ(client_->join(id, 1, address("239.1.2.3")), 0);
  const CmEvent joined = client_->event();
  EXPECT_EQ(joined.type, static_cast<uint32_t>(RDMA_CM_EVENT_MULTICAST_JOIN));
  EXPECT_EQ(joined.multicast, 1u);
  EXPECT_EQ(joined.parameters.qpn, 0xffffffu);
  EXPECT_EQ(joined.parameters.qkey, static_cast<uint32_t>(RDMA_UDP_QKEY));
  const uint8_t mgid[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 2, 3};
  EXPECT_EQ(std::memcmp(joined.route.destination_gid, mgid, sizeof mgid), 0);
  EXPECT_EQ(client_->join(id, 1, address("239.1.2.3")),
            0);  // as a program does that does not know whether its request arrived
  client_->expect(RDMA_CM_EVENT_MULTICAST_JOIN);
  EXPECT_EQ(client_->join(id, 2, address("10.1.2.3")), EINVAL);
  EXPECT_EQ(client_->join(id, 2, address("239.1.2.4"), RDMA_MC_JOIN_FLAG_RESERVED), EINVAL);
  EXPECT_EQ(client_->join(id, 2, address("239.1.2.4"), RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER), 0);
  EXPECT_EQ(client_->leave(id, 1), 0);
  EXPECT_EQ(client_->leave(id, 1), ENOENT);
}

protocol::CmRestoreRequest restoration(uint32_t id, uint32_t state, const CmEvent& last) {
  protocol::CmRestoreRequest request{};
  request.create.id = id;
  request.create.channel = CmProgram::kChannel;
  request.create.port_space = RDMA_PS_TCP;
  request.create.qp_type = IBV_QPT_RC;
  request.state = state;
  request.tos = ~0u;
  request.route = last.route;
  request.connection = last.connection;
  return request;
}

TEST_F(CmConnections, AreTakenUpByTheNextAgentWhenOneIsKilled) {
  listen(address("0.0.0.0", kPort));
  const uint32_t active = client_->resolve(address("127.0.0.1", kPort));
  ASSERT_EQ(client_->connect(active, parameters("hello")), 0);
  const CmEvent request = server_->event();
  ASSERT_EQ(server_->accept(request.id, parameters("", 0x815)), 0);
  const CmEvent response = client_->event();
  ASSERT_EQ(client_->accept(active), 0);
  const CmEvent established = server_->event();
  ASSERT_EQ(established.type, static_cast<uint32_t>(RDMA_CM_EVENT_ESTABLISHED));
  const uint32_t resolved = client_->resolve(address("127.0.0.1", kPort));
  ASSERT_EQ(client_->destroy(resolved), 0);

  agent_->stop(SIGKILL);
  agent_.emplace();
  server_->reconnect();
  client_->reconnect();
  auto listening = restoration(500, protocol::kCmListening, request);
  std::memset(listening.route.source.address, 0, 4);
  ASSERT_EQ(server_->restore(listening), 0);
  ASSERT_EQ(server_->restore(restoration(501, protocol::kCmConnected, established)), 0);
  EXPECT_EQ(server_->restore(restoration(502, protocol::kCmConnected, established)), EPERM) << "once";
  ASSERT_EQ(client_->restore(restoration(503, protocol::kCmConnected, response)), 0);

  ASSERT_EQ(client_->disconnect(503), 0);
  EXPECT_EQ(server_->expect(RDMA_CM_EVENT_DISCONNECTED), 501u);
  ASSERT_EQ(server_->disconnect(501), 0);
  EXPECT_EQ(client_->expect(RDMA_CM_EVENT_DISCONNECTED), 503u);

  auto route = restoration(504, protocol::kCmResolved, response);
  route.route.source.port = 0;
  ASSERT_EQ(client_->restore(route), 0);
  ASSERT_EQ(client_->connect(504, parameters("again", 0x4712)), 0);
  EXPECT_EQ(text_of(server_->event()), "again");
}

// Programs reconnect one after the other. Messages of the first to the others' connections must not be lost.
TEST_F(CmConnections, OfAProgramThatHasNotComeBackYetAreNotDenied) {
  listen(address("0.0.0.0", kPort));
  std::vector<CmEvent> responses, established;
  for (int i = 0; i < 2; ++i) {
    const uint32_t active = client_->resolve(address("127.0.0.1", kPort));
    ASSERT_EQ(client_->connect(active, parameters("hello")), 0);
    ASSERT_EQ(server_->accept(server_->expect(RDMA_CM_EVENT_CONNECT_REQUEST), parameters("")), 0);
    responses.push_back(client_->event());
    ASSERT_EQ(client_->accept(active), 0);
    established.push_back(server_->event());
  }
  agent_->stop(SIGKILL);
  agent_.emplace();
  client_->reconnect();
  ASSERT_EQ(client_->restore(restoration(500, protocol::kCmConnected, responses[0])), 0);
  ASSERT_EQ(client_->restore(restoration(501, protocol::kCmConnected, responses[1])), 0);
  ASSERT_EQ(client_->disconnect(500), 0);
  ASSERT_EQ(client_->disconnect(501), 0);
  const uint32_t caller = client_->resolve(address("127.0.0.1", kPort));
  ASSERT_EQ(client_->connect(caller, parameters("again", 0x4712)), 0);
  EXPECT_FALSE(client_->poll_event(CmProgram::kChannel, 300));

  server_->reconnect();
  ASSERT_EQ(server_->restore(restoration(600, protocol::kCmConnected, established[0])), 0);
  EXPECT_EQ(server_->expect(RDMA_CM_EVENT_DISCONNECTED), 600u);
  ASSERT_EQ(server_->disconnect(600), 0);
  EXPECT_EQ(client_->expect(RDMA_CM_EVENT_DISCONNECTED), 500u);
  listen(address("0.0.0.0", kPort));
  EXPECT_EQ(text_of(server_->event()), "again");
  // The agent does not wait forever for a connection that is not restored.
  CmEvent last = client_->event();
  if (last.type == static_cast<uint32_t>(RDMA_CM_EVENT_TIMEWAIT_EXIT)) last = client_->event();
  EXPECT_EQ(last.type, static_cast<uint32_t>(RDMA_CM_EVENT_DISCONNECTED));
  EXPECT_EQ(last.id, 501u);
}

// Connections to two destinations may share a local port: there may be more connections than ports.
TEST_F(CmConnections, ShareALocalPortWithTheNextAgentToo) {
  ASSERT_TRUE(test::shell("echo 40000 40000 > /proc/sys/net/ipv4/ip_local_port_range"));
  const uint16_t ports[] = {kPort, kPort + 1, kPort + 2};
  std::vector<CmEvent> responses;
  for (const uint16_t port : ports) {
    listen(address("0.0.0.0", port));
    const uint32_t active = client_->resolve(address("127.0.0.1", port));
    ASSERT_EQ(client_->connect(active, parameters("hello")), 0);
    ASSERT_EQ(server_->accept(server_->expect(RDMA_CM_EVENT_CONNECT_REQUEST), parameters("")), 0);
    responses.push_back(client_->event());
    ASSERT_EQ(client_->accept(active), 0);
    server_->expect(RDMA_CM_EVENT_ESTABLISHED);
    EXPECT_EQ(ntohs(responses.back().route.source.port), 40000);
  }
  agent_->stop(SIGKILL);
  agent_.emplace();
  client_->reconnect();
  EXPECT_EQ(client_->restore(restoration(500, protocol::kCmConnected, responses[0])), 0);
  EXPECT_EQ(client_->restore(restoration(501, protocol::kCmConnected, responses[1])), 0);
  EXPECT_EQ(client_->restore(restoration(502, protocol::kCmResolved, responses[2])), 0);
  // A second connection to the same destination cannot share the port.
  EXPECT_EQ(client_->restore(restoration(503, protocol::kCmResolved, responses[2])), EADDRNOTAVAIL);
}

TEST_F(CmConnections, AreNotEndedByAnAgentThatEndsItself) {
  listen(address("0.0.0.0", kPort));
  establish(address("127.0.0.1", kPort));
  agent_->stop(SIGTERM);
  agent_.emplace();
  client_->reconnect();
  EXPECT_FALSE(client_->poll_event(CmProgram::kChannel, 100));
}

TEST_F(CmConnections, StayOnThisHostWithoutAWire) {
  server_->hang_up();
  client_->hang_up();
  agent_.reset();
  const UniqueFd holder(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in taken{};
  taken.sin_family = AF_INET;
  taken.sin_port = htons(4791);
  ASSERT_EQ(::bind(holder.get(), reinterpret_cast<const sockaddr*>(&taken), sizeof taken), 0);
  agent_.emplace();
  server_->reconnect();
  client_->reconnect();
  listen(address("0.0.0.0", kPort));
  establish(address("127.0.0.1", kPort));
}

}  // namespace
}  // namespace verbena
