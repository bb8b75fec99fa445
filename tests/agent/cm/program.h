// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <sys/socket.h>

#include "base/socket_option.h"
#include "base/time.h"
#include "base/unique_fd.h"
#include "control/client/agent_connection.h"
#include "control/protocol/connection_messages.h"

namespace verbena::test {

// Parses "10.0.0.1" or "fe80::1", with a port.
inline protocol::CmAddress address(const std::string& host, uint16_t port = 0, uint32_t scope_id = 0) {
  protocol::CmAddress result{};
  result.family = host.find(':') == std::string::npos ? AF_INET : AF_INET6;
  result.port = htons(port);
  result.scope_id = scope_id;
  EXPECT_EQ(::inet_pton(result.family, host.c_str(), result.address), 1) << host;
  return result;
}
inline uint16_t port_of(const protocol::CmRoute& route) {
  return ntohs(route.source.port);
}
// Returns connection parameters. A `qpn` of 0 stands for a number that no other connection has.
inline protocol::ConnectionParameters parameters(const std::string& private_data, uint32_t qpn = 0) {
  static uint32_t next = 0x4000;
  protocol::ConnectionParameters result{};
  result.qpn = qpn != 0 ? qpn : next++;
  result.responder_resources = 4;
  result.initiator_depth = 2;
  result.retry_count = 7;
  result.rnr_retry_count = 6;
  result.private_length = static_cast<uint8_t>(private_data.size());
  std::memcpy(result.private_data, private_data.data(), private_data.size());
  return result;
}
// Returns the private data of an event as text, without trailing zeros.
inline std::string text_of(const protocol::CmEvent& event) {
  const auto* data = reinterpret_cast<const char*>(event.parameters.private_data);
  const std::string all(data, event.parameters.private_length);
  return all.substr(0, all.find('\0'));
}

// A program as the agent sees it: a connection that speaks control/protocol/connection_messages.h. Requests
// return 0 or the errno value.
class CmProgram {
 public:
  static constexpr uint32_t kChannel = 1;

  CmProgram() {
    connect_to_agent();
    if (!connected()) return;
    EXPECT_EQ(open_channel(kChannel), 0);
  }

  bool connected() const { return connection_.has_value(); }
  // Connects to the successor of a killed agent, and passes it the takeover state and the channels.
  void reconnect() {
    connect_to_agent();
    ++generation_;
    for (auto& [number, ends] : channels_) EXPECT_EQ(tell_of_channel(number, ends.agents.get()), 0);
  }
  // Closes the connection, as the end of a process does.
  void hang_up() {
    connection_.reset();
    greeting_.clear();
  }

  int open_channel(uint32_t number) {
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) return errno;
    bind_to_random_name(pair[1]);
    channels_[number] = {UniqueFd(pair[0]), UniqueFd(pair[1])};
    return tell_of_channel(number, pair[1]);
  }
  int close_channel(uint32_t number) {
    protocol::CmChannelRequest request{};
    request.channel = number;
    return plain(protocol::MessageType::kCmCloseChannel, request);
  }

  // Creates an identifier and returns its number.
  uint32_t create(uint16_t port_space = RDMA_PS_TCP, uint8_t qp_type = IBV_QPT_RC,
                  uint32_t channel = kChannel) {
    EXPECT_EQ(create(next_id_, port_space, qp_type, channel), 0);
    return next_id_++;
  }
  int create(uint32_t number, uint16_t port_space, uint8_t qp_type, uint32_t channel) {
    protocol::CmCreateRequest request{};
    request.id = number;
    request.channel = channel;
    request.port_space = port_space;
    request.qp_type = qp_type;
    return plain(protocol::MessageType::kCmCreateId, request);
  }
  int destroy(uint32_t id) {
    protocol::CmIdRequest request{};
    request.id = id;
    const auto answer = connection_->call<protocol::CmDestroyReply>(protocol::MessageType::kCmDestroyId,
                                                                    request, 0, deadline());
    if (answer) events_of_destroyed_ = answer->message.events;
    return code(answer);
  }
  // Returns the agent's counters; all zeros if it does not answer.
  protocol::CmStatus status() {
    const auto answer = connection_->call<protocol::CmStatusReply>(
        protocol::MessageType::kGetCmStatus, protocol::GetCmStatusRequest{}, 0, deadline());
    return answer ? answer->message.status : protocol::CmStatus{};
  }
  // The number of events that the agent reports to have sent for the identifier destroyed last.
  uint32_t events_of_destroyed() const { return events_of_destroyed_; }
  int bind(uint32_t id, const protocol::CmAddress& to) {
    protocol::CmBindRequest request{};
    request.id = id;
    request.address = to;
    return with_address(protocol::MessageType::kCmBind, request);
  }
  int listen(uint32_t id, uint32_t backlog = 0) {
    protocol::CmListenRequest request{};
    request.id = id;
    request.backlog = backlog;
    return with_address(protocol::MessageType::kCmListen, request);
  }
  int resolve_address(uint32_t id, const protocol::CmAddress& to, const protocol::CmAddress& from = {},
                      uint32_t timeout_ms = 2000) {
    protocol::CmResolveRequest request{};
    request.id = id;
    request.timeout_ms = timeout_ms;
    request.source = from;
    request.destination = to;
    return with_address(protocol::MessageType::kCmResolveAddress, request);
  }
  int resolve_route(uint32_t id) { return of_id(protocol::MessageType::kCmResolveRoute, id); }
  int connect(uint32_t id, const protocol::ConnectionParameters& with) {
    return connect_or_accept(protocol::MessageType::kCmConnect, id, with);
  }
  int accept(uint32_t id, const protocol::ConnectionParameters& with = {}, uint32_t refused = 0) {
    return connect_or_accept(protocol::MessageType::kCmAccept, id, with, refused);
  }
  int reject(uint32_t id, const std::string& private_data, uint8_t reason = 28) {
    protocol::CmRejectRequest request{};
    request.id = id;
    request.reason = reason;
    request.private_length = static_cast<uint8_t>(private_data.size());
    std::memcpy(request.private_data, private_data.data(), private_data.size());
    return plain(protocol::MessageType::kCmReject, request);
  }
  int establish(uint32_t id) { return of_id(protocol::MessageType::kCmEstablish, id); }
  int disconnect(uint32_t id) { return of_id(protocol::MessageType::kCmDisconnect, id); }
  int set_option(uint32_t id, uint32_t option, uint32_t value) {
    protocol::CmOptionRequest request{};
    request.id = id;
    request.option = option;
    request.value = value;
    return plain(protocol::MessageType::kCmSetOption, request);
  }
  int join(uint32_t id, uint32_t number, const protocol::CmAddress& group, uint32_t flags = 0) {
    protocol::CmJoinRequest request{};
    request.id = id;
    request.multicast = number;
    request.join_flags = flags;
    request.group = group;
    return plain(protocol::MessageType::kCmJoin, request);
  }
  int leave(uint32_t id, uint32_t number) {
    protocol::CmLeaveRequest request{};
    request.id = id;
    request.multicast = number;
    return plain(protocol::MessageType::kCmLeave, request);
  }
  int migrate(uint32_t id, uint32_t channel) {
    protocol::CmMigrateRequest request{};
    request.id = id;
    request.channel = channel;
    return plain(protocol::MessageType::kCmMigrateId, request);
  }
  int restore(const protocol::CmRestoreRequest& request) {
    return with_address(protocol::MessageType::kCmRestoreId, request);
  }
  // The route in the reply to the last request that returns one.
  const protocol::CmRoute& route() const { return route_; }

  // Waits for the next event. If none comes, fails the test and returns one of type -1.
  protocol::CmEvent event(uint32_t channel = kChannel, int timeout_ms = 5000) {
    const auto next = poll_event(channel, timeout_ms);
    if (next) return *next;
    ADD_FAILURE() << "no event";
    protocol::CmEvent none{};
    none.type = ~0u;
    return none;
  }
  std::optional<protocol::CmEvent> poll_event(uint32_t channel = kChannel, int timeout_ms = 0) {
    pollfd entry{channels_[channel].application.get(), POLLIN, 0};
    if (::poll(&entry, 1, timeout_ms) != 1) return std::nullopt;
    protocol::CmEvent event{};
    if (::recv(entry.fd, &event, sizeof event, 0) != sizeof event) return std::nullopt;
    EXPECT_EQ(event.magic, protocol::CmEvent::kMagic);
    EXPECT_EQ(event.generation, generation_);
    return event;
  }
  // Waits for the next event, checks type and status, and returns its identifier.
  uint32_t expect(int type, int status = 0, uint32_t channel = kChannel) {
    const protocol::CmEvent next = event(channel);
    EXPECT_EQ(static_cast<int>(next.type), type) << ::testing::PrintToString(next.status);
    EXPECT_EQ(next.status, status);
    return next.id;
  }

  // Creates an identifier and resolves it up to ROUTE_RESOLVED.
  uint32_t resolve(const protocol::CmAddress& to, uint16_t port_space = RDMA_PS_TCP,
                   uint8_t qp_type = IBV_QPT_RC) {
    const uint32_t id = create(port_space, qp_type);
    EXPECT_EQ(resolve_address(id, to), 0);
    expect(RDMA_CM_EVENT_ADDR_RESOLVED);
    EXPECT_EQ(resolve_route(id), 0);
    expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
    return id;
  }

  template <class Request>
  int plain(protocol::MessageType type, const Request& request) {
    return code(connection_->call<protocol::PlainReply>(type, request, 0, deadline()));
  }

 private:
  static TimePoint deadline() { return MonotonicClock::now() + std::chrono::seconds(5); }
  template <class Answer>
  static int code(const Answer& answer) {
    return answer ? 0 : answer.error().code;
  }
  template <class Request>
  int with_address(protocol::MessageType type, const Request& request) {
    const auto answer = connection_->call<protocol::CmAddressReply>(type, request, 0, deadline());
    if (answer) route_ = answer->message.route;
    return code(answer);
  }
  int of_id(protocol::MessageType type, uint32_t id) {
    protocol::CmIdRequest request{};
    request.id = id;
    return plain(type, request);
  }
  int connect_or_accept(protocol::MessageType type, uint32_t id, const protocol::ConnectionParameters& with,
                        uint32_t refused = 0) {
    protocol::CmConnectRequest request{};
    request.id = id;
    request.refused = refused;
    request.parameters = with;
    return plain(type, request);
  }

  void connect_to_agent() {
    auto connection = control::NamespaceDialer().open();
    if (!connection) return;
    connection_.emplace(std::move(*connection));
    protocol::HelloRequest hello{};
    std::strcpy(hello.program, "test");
    const int takeover_state = greeting_.size() == 3 ? greeting_[2].get() : -1;
    auto greeting =
        connection_->call<protocol::HelloReply>(protocol::MessageType::kHello, hello, 2, deadline(),
                                                {&takeover_state, takeover_state >= 0 ? 1u : 0u});
    ASSERT_TRUE(greeting);
    greeting_ = std::move(greeting->fds);
  }
  int tell_of_channel(uint32_t number, int agents_end) {
    protocol::CmChannelRequest request{};
    request.channel = number;
    request.generation = generation_;
    return code(connection_->call<protocol::PlainReply>(protocol::MessageType::kCmOpenChannel, request, 0,
                                                        deadline(), {&agents_end, 1}));
  }

  struct Ends {
    UniqueFd application;
    UniqueFd agents;
  };
  std::optional<control::AgentConnection> connection_;
  std::vector<UniqueFd> greeting_;
  std::map<uint32_t, Ends> channels_;
  uint32_t generation_ = 1;
  uint32_t next_id_ = 1;
  uint32_t events_of_destroyed_ = 0;
  protocol::CmRoute route_{};
};

}  // namespace verbena::test
