// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <sys/socket.h>

#include "agent/cm/cleanup.h"
#include "agent/cm/client.h"
#include "agent/cm/service.h"
#include "agent/event_loop.h"
#include "agent/sessions/client_sockets.h"
#include "base/socket_option.h"
#include "control/protocol/connection_messages.h"

namespace verbena::agent {

// A program that is a client of the CM service in the same process, without sockets. Keeps the result of the
// last request.
class Program : private CmClientHost {
 public:
  Program(CmService& service, ForeignCloser& closer, uid_t user) : user_(user), service_(service) {
    CmClientHost& host = *this;
    client_ = std::make_unique<CmClient>(service, host);
    open(1, closer);
    open(2, closer);
  }

  // Creates an identifier and returns its number; 0 if refused.
  uint32_t create(uint32_t channel = 1) {
    protocol::CmCreateRequest request{};
    request.id = ++last_;
    request.channel = channel;
    request.port_space = RDMA_PS_TCP;
    return ask<&ClientRequests::create>(protocol::MessageType::kCmCreateId, request) == 0 ? last_ : 0;
  }
  void create_many(size_t count) {
    for (size_t i = 0; i < count; ++i) ASSERT_NE(create(), 0u) << i;
  }
  int listen(uint32_t id) {
    protocol::CmListenRequest request{};
    request.id = id;
    return ask<&ClientRequests::listen>(protocol::MessageType::kCmListen, request);
  }
  int destroy(uint32_t id) {
    protocol::CmIdRequest request{};
    request.id = id;
    return ask<&ClientRequests::destroy>(protocol::MessageType::kCmDestroyId, request);
  }
  int bind(uint32_t id, uint16_t port) {
    CmAddress any{};
    any.family = AF_INET;
    any.port = htons(port);
    return bind(id, any);
  }
  int bind(uint32_t id, const CmAddress& address) {
    protocol::CmBindRequest request{};
    request.id = id;
    request.address = address;
    return ask<&ClientRequests::bind>(protocol::MessageType::kCmBind, request);
  }
  // An established connection of a former agent from 10.1.2.3 to itself, whose other end is unknown.
  uint32_t restore_connection() {
    protocol::CmRestoreRequest request{};
    request.create.id = ++last_;
    request.create.channel = 1;
    request.create.port_space = RDMA_PS_TCP;
    request.create.qp_type = request.connection.qp_type = IBV_QPT_RC;
    request.state = protocol::kCmConnected;
    request.tos = ~0u;
    request.route.source.family = request.route.destination.family = AF_INET;
    ::inet_pton(AF_INET, "10.1.2.3", request.route.source.address);
    ::inet_pton(AF_INET, "10.1.2.3", request.route.destination.address);
    ::inet_pton(AF_INET6, "::ffff:10.1.2.3", request.route.destination_gid);
    request.connection.local_id = last_;
    request.connection.remote_id = last_ + 1'000'000;
    request.connection.local_qpn = request.connection.remote_qpn = last_ + 1000;
    return ask<&ClientRequests::restore>(protocol::MessageType::kCmRestoreId, request) == 0 ? last_ : 0;
  }
  void begin_to_close() {
    protocol::CmChannelRequest request{};
    request.channel = 1;
    ask<&ClientRequests::close_channel>(protocol::MessageType::kCmCloseChannel, request);
  }
  int close() {
    return in_slices([this] { begin_to_close(); });
  }
  // A datagram identifier at 10.1.2.3, with an event for each time that it joins a group.
  uint32_t join_often(size_t count) {
    protocol::CmCreateRequest request{};
    request.id = ++last_;
    request.channel = 1;
    request.port_space = RDMA_PS_UDP;
    if (ask<&ClientRequests::create>(protocol::MessageType::kCmCreateId, request) != 0) return 0;
    protocol::CmBindRequest bound{};
    bound.id = last_;
    bound.address.family = AF_INET;
    ::inet_pton(AF_INET, "10.1.2.3", bound.address.address);
    EXPECT_EQ(ask<&ClientRequests::bind>(protocol::MessageType::kCmBind, bound), 0);
    for (size_t i = 0; i < count; ++i) EXPECT_EQ(join(), 0);
    return last_;
  }
  // Repeats the last join.
  int join() {
    protocol::CmJoinRequest join{};
    join.id = last_;
    join.multicast = 1;
    join.join_flags = 1;
    join.group.family = AF_INET;
    ::inet_pton(AF_INET, "239.1.1.1", join.group.address);
    return ask<&ClientRequests::join>(protocol::MessageType::kCmJoin, join);
  }
  int destroy_in_slices(uint32_t id) {
    return in_slices([this, id] { destroy(id); });
  }
  int migrate(uint32_t id, uint32_t channel) {
    protocol::CmMigrateRequest request{};
    request.id = id;
    request.channel = channel;
    return in_slices([&] { ask<&ClientRequests::migrate>(protocol::MessageType::kCmMigrateId, request); });
  }
  bool hung_up = false;  // the service has disconnected this client
  size_t slices = 0;     // of the last request that was carried out so
  CmClient& client() { return *client_; }
  void end() { service_.gone_clients().add(std::move(client_)); }

 private:
  template <class Begin>
  int in_slices(const Begin& begin) {
    answer_ = kNoAnswer;
    begin();
    for (slices = 1; client_->is_busy(); ++slices) {
      EXPECT_EQ(answer_, kNoAnswer) << "it is answered when all are gone";
      client_->go_on();
    }
    return answer_;
  }
  void open(uint32_t channel, ForeignCloser& closer) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) return;
    bind_to_random_name(ends[1]);
    events_[channel - 1].reset(ends[0]);
    protocol::CmChannelRequest request{};
    request.channel = channel;
    EXPECT_EQ(ask<&ClientRequests::open_channel>(protocol::MessageType::kCmOpenChannel, request,
                                                 ClientFile(UniqueFd(ends[1]), user_, closer)),
              0);
  }
  template <auto Method, class Request>
  int ask(protocol::MessageType type, Request request, ClientFile file = {}) {
    request.header = protocol::request_header(type, 0);
    client_->carry_out<Method>(request.header, protocol::bytes_of(request), std::move(file));
    return answer_;
  }
  void send_reply(ConstBytes) override { answer_ = 0; }
  void send_error(const protocol::MessageHeader&, int error, std::string_view) override { answer_ = error; }
  void hang_up() override { hung_up = true; }
  uid_t user() const override { return user_; }
  bool may_use_qpn(uint32_t) const override { return true; }

  static constexpr int kNoAnswer = -1;
  const uid_t user_;
  CmService& service_;
  std::array<UniqueFd, 2> events_;
  uint32_t last_ = 0;
  int answer_ = 0;
  std::unique_ptr<CmClient> client_;
};

// A CM service without a wire, and the objects that its programs need.
class CmInProcess : public ::testing::Test {
 protected:
  Program program(uid_t user) { return {service_, closer_, user}; }
  // Adds a link over netdev 1 with the addresses 10.1.2.3 and fe80::1.
  void add_link() {
    control::Link link;
    link.name = "test";
    link.device_index = link.interface_index = 1;
    link.up = true;
    constexpr uint8_t kAddress[] = {10, 1, 2, 3};
    roce::Address link_local;
    ::inet_pton(AF_INET6, "fe80::1", link_local.bytes.data());
    link.gids = {{0, roce::Address::from_ipv4(kAddress)}, {1, link_local}};
    service_.links_changed({link}, {});
  }

  EventLoop loop_{Duration::zero()};
  ForeignCloser closer_;
  AgentHost agent_;
  CmService service_{loop_, closer_, 4791, agent_};
};

}  // namespace verbena::agent
