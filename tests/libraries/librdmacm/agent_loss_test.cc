// SPDX-License-Identifier: Apache-2.0
// The agent is killed at each stage of a connection, and another one is started.
#include <cerrno>

#include <fcntl.h>

#include "adapter/objects/support/environment.h"
#include "libraries/librdmacm/support/connection.h"

namespace verbena::rdmacm::testing {
namespace {

using adapter::testing::Environment;
using adapter::testing::isolated;

void replace_agent() {
  Environment::kill_agent(SIGKILL);
  Environment::start_agent();
}

TEST(AgentLoss, LeavesNewIdentifiersUsable) {
  isolated([] {
    const OwnChannel channel = make_channel();
    const OwnId id = make_id(channel.get());
    replace_agent();
    sockaddr_in address = ipv4("127.0.0.1", 7);
    ASSERT_EQ(rdma_resolve_addr(id.get(), nullptr, generic(address), 2000), 0) << std::strerror(errno);
    hear(channel.get(), RDMA_CM_EVENT_ADDR_RESOLVED);
  });
}

TEST(AgentLoss, LeavesListenersListening) {
  isolated([] {
    Listener listener;
    replace_agent();
    Caller caller(listener.port);
    caller.create_qp();
    caller.connect("after");
    const Heard request = hear(listener.channel.get(), RDMA_CM_EVENT_CONNECT_REQUEST);
    EXPECT_EQ(request.listener, listener.id.get());
    const OwnId accepted(request.id);
    ibv_qp_init_attr attributes = small_qp();
    ASSERT_EQ(rdma_create_qp(accepted.get(), nullptr, &attributes), 0);
    rdma_conn_param parameters = with_data("");
    ASSERT_EQ(rdma_accept(accepted.get(), &parameters), 0) << std::strerror(errno);
    hear(caller.channel.get(), RDMA_CM_EVENT_ESTABLISHED);
  });
}

TEST(AgentLoss, LetsARouteBeUsed) {
  isolated([] {
    Listener listener;
    Caller caller(listener.port);
    caller.create_qp();
    replace_agent();
    caller.connect();
    const OwnId request(hear(listener.channel.get(), RDMA_CM_EVENT_CONNECT_REQUEST).id);
  });
}

TEST(AgentLoss, IsToldToAnIdentifierThatWasConnecting) {
  isolated([] {
    Listener listener;
    Caller caller(listener.port);
    caller.create_qp();
    caller.connect();
    const OwnId request(hear(listener.channel.get(), RDMA_CM_EVENT_CONNECT_REQUEST).id);
    replace_agent();
    const Heard lost = hear(caller.channel.get(), RDMA_CM_EVENT_UNREACHABLE);
    EXPECT_EQ(lost.status, -ECONNRESET);
    // The request came from the killed agent.
    rdma_conn_param parameters = with_data("");
    EXPECT_EQ(rdma_accept(request.get(), &parameters), -1);
    EXPECT_EQ(errno, ECONNRESET);
  });
}

TEST(AgentLoss, LeavesConnectionsStandingAndEndsThemAsUsual) {
  isolated([] {
    Connection connection;
    replace_agent();
    exchange(connection.caller.id.get(), connection.accepted.get());
    ASSERT_EQ(rdma_disconnect(connection.caller.id.get()), 0) << std::strerror(errno);
    EXPECT_EQ(hear(connection.listener.channel.get(), RDMA_CM_EVENT_DISCONNECTED).id,
              connection.accepted.get());
    ASSERT_EQ(rdma_disconnect(connection.accepted.get()), 0) << std::strerror(errno);
    hear(connection.caller.channel.get(), RDMA_CM_EVENT_DISCONNECTED);
  });
}

TEST(AgentLoss, LeavesUndeliveredEventsReadable) {
  isolated([] {
    Connection connection;
    ASSERT_EQ(rdma_disconnect(connection.caller.id.get()), 0);
    ASSERT_TRUE(readable(connection.listener.channel.get(), kPatienceMs));
    replace_agent();
    hear(connection.listener.channel.get(), RDMA_CM_EVENT_DISCONNECTED);
  });
}

TEST(AgentLoss, KeepsIdentifiersApartThatTwoAgentsNumberedAlike) {
  isolated([] {
    Connection connection;
    replace_agent();
    Caller second(connection.listener.port);
    second.create_qp();
    second.connect();
    const OwnId request(hear(connection.listener.channel.get(), RDMA_CM_EVENT_CONNECT_REQUEST).id);
    EXPECT_NE(request.get(), connection.accepted.get());
    ASSERT_EQ(rdma_disconnect(connection.accepted.get()), 0) << std::strerror(errno);
    hear(connection.caller.channel.get(), RDMA_CM_EVENT_DISCONNECTED);
  });
}

TEST(AgentLoss, FailsCallsWhenThereIsNoOther) {
  isolated([] {
    const OwnChannel channel = make_channel();
    Environment::kill_agent(SIGKILL);
    rdma_cm_id* id = nullptr;
    EXPECT_EQ(rdma_create_id(channel.get(), &id, nullptr, RDMA_PS_TCP), -1);
    EXPECT_EQ(errno, ECONNREFUSED);
  });
}

}  // namespace
}  // namespace verbena::rdmacm::testing
