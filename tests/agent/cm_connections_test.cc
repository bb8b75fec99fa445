// SPDX-License-Identifier: Apache-2.0
// Two programs that connect through the agent.
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "agent/agent_process.h"
#include "agent/cm_program.h"
#include "agent/network_namespace.h"

namespace verbena {
namespace {

using control::CmEvent;
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
    agent_.emplace();
    server_.emplace();
    client_.emplace();
    ASSERT_TRUE(server_->connected() && client_->connected());
  }

  uint32_t listen(const control::CmAddress& at, uint32_t backlog = 0) {
    const uint32_t listener = server_->create();
    EXPECT_EQ(server_->bind(listener, at), 0);
    EXPECT_EQ(server_->listen(listener, backlog), 0);
    return listener;
  }
  // The client's identifier and the server's of a connection that stands.
  std::pair<uint32_t, uint32_t> establish(const control::CmAddress& to) {
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
  EXPECT_NE(request.id & control::kCmAgentsNumber, 0u);
  EXPECT_EQ(text_of(request), "hello");
  EXPECT_EQ(request.parameters.private_length, 56);
  EXPECT_EQ(request.parameters.qpn, 0x4711u);
  EXPECT_EQ(request.parameters.responder_resources, 2);
  EXPECT_EQ(request.parameters.initiator_depth, 4);
  EXPECT_EQ(request.connection.remote_qpn, 0x4711u);
  EXPECT_STREQ(request.route.link, "rxe_lo");
  EXPECT_EQ(ntohs(request.route.source.port), kPort);
  EXPECT_NE(request.route.destination.port, 0);

  control::CmParameters answer = parameters("welcome", 0x815);
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
    EXPECT_EQ(server_->destroy(passive), 0);
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

}  // namespace
}  // namespace verbena
