// SPDX-License-Identifier: Apache-2.0
// A new agent grants again what its predecessor had granted. State that only the predecessor knew does no
// harm.
#include <cerrno>
#include <cstring>

#include <netinet/in.h>

#include "adapter/objects/support/environment.h"
#include "libraries/librdmacm/support/connection.h"

namespace verbena::rdmacm::testing {
namespace {

using adapter::testing::Environment;
using adapter::testing::isolated;

constexpr uint16_t kPort = 7471;

void replace_agent() {
  Environment::kill_agent(SIGKILL);
  Environment::start_agent();
}

sockaddr_in6 ipv6(const in6_addr& address, uint16_t port) {
  sockaddr_in6 result{};
  result.sin6_family = AF_INET6;
  result.sin6_port = htons(port);
  result.sin6_addr = address;
  return result;
}

// Every agent numbers its requests from the same first number.
TEST(Restoration, ARequestThatIsLostDoesNotTakeTheNextWithIt) {
  isolated([] {
    Listener listener;
    Caller first(listener.port);
    first.create_qp();
    first.connect();
    OwnId lost(hear(listener.channel.get(), RDMA_CM_EVENT_CONNECT_REQUEST).id);
    replace_agent();
    hear(first.channel.get(), RDMA_CM_EVENT_UNREACHABLE);
    Caller second(listener.port);
    second.create_qp();
    second.connect();
    const OwnId request(hear(listener.channel.get(), RDMA_CM_EVENT_CONNECT_REQUEST).id);
    lost.reset();
    ibv_qp_init_attr attributes = small_qp();
    ASSERT_EQ(rdma_create_qp(request.get(), nullptr, &attributes), 0) << std::strerror(errno);
    rdma_conn_param parameters = with_data("");
    ASSERT_EQ(rdma_accept(request.get(), &parameters), 0) << std::strerror(errno);
    hear(second.channel.get(), RDMA_CM_EVENT_ESTABLISHED);
  });
}

TEST(Restoration, ListenersOfBothFamiliesKeepTheirPort) {
  isolated([] {
    const OwnChannel channel = make_channel();
    const OwnId by_ipv4 = make_id(channel.get()), by_ipv6 = make_id(channel.get());
    sockaddr_in any4 = ipv4("0.0.0.0", kPort);
    ASSERT_EQ(rdma_bind_addr(by_ipv4.get(), generic(any4)), 0) << std::strerror(errno);
    int alone = 1;
    ASSERT_EQ(rdma_set_option(by_ipv6.get(), RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &alone, sizeof alone), 0);
    sockaddr_in6 any6 = ipv6(in6addr_any, kPort), loopback6 = ipv6(in6addr_loopback, kPort);
    ASSERT_EQ(rdma_bind_addr(by_ipv6.get(), reinterpret_cast<sockaddr*>(&any6)), 0) << std::strerror(errno);
    ASSERT_EQ(rdma_listen(by_ipv4.get(), 8), 0);
    ASSERT_EQ(rdma_listen(by_ipv6.get(), 8), 0);
    replace_agent();
    Caller caller4(kPort);
    caller4.create_qp();
    caller4.connect();
    const Heard request4 = hear(channel.get(), RDMA_CM_EVENT_CONNECT_REQUEST);
    EXPECT_EQ(request4.listener, by_ipv4.get());
    const OwnId own4(request4.id);

    const OwnChannel callers = make_channel();
    const OwnId caller6 = make_id(callers.get());
    ASSERT_EQ(rdma_resolve_addr(caller6.get(), nullptr, reinterpret_cast<sockaddr*>(&loopback6), 2000), 0);
    hear(callers.get(), RDMA_CM_EVENT_ADDR_RESOLVED);
    ASSERT_EQ(rdma_resolve_route(caller6.get(), 2000), 0);
    hear(callers.get(), RDMA_CM_EVENT_ROUTE_RESOLVED);
    rdma_conn_param parameters = with_data("");
    ASSERT_EQ(rdma_connect(caller6.get(), &parameters), 0) << std::strerror(errno);
    const Heard request6 = hear(channel.get(), RDMA_CM_EVENT_CONNECT_REQUEST);
    EXPECT_EQ(request6.listener, by_ipv6.get());
    const OwnId own6(request6.id);
  });
}

// The identifier that answers a SIDR request has its listener's port in its own address.
TEST(Restoration, AnsweredLookupsLeaveThePortToTheirListener) {
  isolated([] {
    Listener listener(RDMA_PS_UDP);
    OwnId answered[4];
    for (OwnId& each : answered) {
      Caller caller(listener.port, RDMA_PS_UDP);
      caller.create_qp(IBV_QPT_UD);
      caller.connect();
      each.reset(hear(listener.channel.get(), RDMA_CM_EVENT_CONNECT_REQUEST).id);
      ibv_qp_init_attr attributes = small_qp(IBV_QPT_UD);
      ASSERT_EQ(rdma_create_qp(each.get(), nullptr, &attributes), 0) << std::strerror(errno);
      rdma_conn_param parameters = with_data("");
      ASSERT_EQ(rdma_accept(each.get(), &parameters), 0) << std::strerror(errno);
      hear(caller.channel.get(), RDMA_CM_EVENT_ESTABLISHED);
    }
    replace_agent();
    Caller caller(listener.port, RDMA_PS_UDP);
    caller.create_qp(IBV_QPT_UD);
    caller.connect();
    const Heard request = hear(listener.channel.get(), RDMA_CM_EVENT_CONNECT_REQUEST);
    EXPECT_EQ(request.listener, listener.id.get());
    const OwnId own(request.id);
  });
}

// The client restores its membership with the new agent before it repeats the join.
TEST(Restoration, AGroupIsJoinedThoughTheAgentIsGone) {
  isolated([] {
    for (int i = 0; i < 8; ++i) {
      const OwnChannel channel = make_channel();
      const OwnId id = make_id(channel.get(), RDMA_PS_UDP);
      sockaddr_in address = ipv4("127.0.0.1", 0), group = ipv4("239.1.2.3", 0);
      resolve_to(channel.get(), id.get(), address);
      replace_agent();
      ASSERT_EQ(rdma_join_multicast(id.get(), generic(group), nullptr), 0) << std::strerror(errno);
      hear(channel.get(), RDMA_CM_EVENT_MULTICAST_JOIN);
      EXPECT_EQ(rdma_leave_multicast(id.get(), generic(group)), 0) << std::strerror(errno);
    }
  });
}

}  // namespace
}  // namespace verbena::rdmacm::testing
