// SPDX-License-Identifier: Apache-2.0
// What a program of connection management leaves when it ends is cleared away in slices, which nobody sees.
#include <array>
#include <cerrno>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <rdma/rdma_cma.h>
#include <sys/socket.h>

#include "agent/client_sockets.h"
#include "agent/cm/client.h"
#include "agent/cm/gone_clients.h"
#include "agent/cm/service.h"
#include "agent/cm/status.h"
#include "agent/event_loop.h"
#include "protocol/connection_messages.h"

namespace verbena::agent {
namespace {

using protocol::MessageType;

constexpr uid_t kUser = 4242;
constexpr uid_t kOtherUser = 4243;
constexpr uint16_t kPort = 7471;

// A program, and the answer to its last request.
class Program : private CmClientHost {
 public:
  Program(CmService& service, ForeignCloser& closer, uid_t user) : user_(user), service_(service) {
    CmClientHost& host = *this;
    client_ = std::make_unique<CmClient>(service, host);
    open(1, closer);
    open(2, closer);
  }

  // An identifier; 0: refused.
  uint32_t create(uint32_t channel = 1) {
    protocol::CmCreateRequest request{};
    request.id = ++last_;
    request.channel = channel;
    request.port_space = RDMA_PS_TCP;
    return ask(MessageType::kCmCreateId, request) == 0 ? last_ : 0;
  }
  void create_many(size_t count) {
    for (size_t i = 0; i < count; ++i) ASSERT_NE(create(), 0u) << i;
  }
  int bind(uint32_t id, uint16_t port) {
    protocol::CmBindRequest request{};
    request.id = id;
    request.address.family = AF_INET;
    request.address.port = htons(port);
    return ask(MessageType::kCmBind, request);
  }
  int close() {
    protocol::CmChannelRequest request{};
    request.channel = 1;
    return ask(MessageType::kCmCloseChannel, request);
  }
  void end() { service_.gone_clients().add(std::move(client_)); }

 private:
  void open(uint32_t channel, ForeignCloser& closer) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) return;
    events_[channel - 1].reset(ends[0]);
    protocol::CmChannelRequest request{};
    request.channel = channel;
    EXPECT_EQ(ask(MessageType::kCmOpenChannel, request, ClientFile(UniqueFd(ends[1]), user_, closer)), 0);
  }
  template <class Request>
  int ask(MessageType type, Request request, ClientFile file = {}) {
    request.header = protocol::request_header(type, 0);
    client_->handle(request.header, protocol::bytes_of(request), std::move(file));
    return answer_;
  }
  void send_reply(ConstBytes) override { answer_ = 0; }
  void send_error(const protocol::MessageHeader&, int error, std::string_view) override { answer_ = error; }
  void hang_up() override {}
  uid_t user() const override { return user_; }
  bool may_use_qpn(uint32_t) const override { return true; }

  const uid_t user_;
  CmService& service_;
  std::array<UniqueFd, 2> events_;
  uint32_t last_ = 0;
  int answer_ = 0;
  std::unique_ptr<CmClient> client_;
};

class GoneClientsTest : public ::testing::Test {
 protected:
  Program program(uid_t user = kUser) { return {service_, closer_, user}; }
  size_t left(uid_t user = kUser) { return service_.usage_of(user).identifiers; }
  bool is_clear() { return service_.gone_clients().empty(); }

  EventLoop loop_;
  ForeignCloser closer_;
  CmService service_{loop_,
                     4791,
                     {.no_wire_reason = [] { return std::string(); },
                      .on_quiet = [] {},
                      .is_orphan = [](uint32_t) { return false; }}};
};

TEST_F(GoneClientsTest, ClearsAwayWhatAProgramLeavesLittleByLittle) {
  Program large = program();
  large.create_many(GoneClients::kAtOnce * 4);
  large.end();
  EXPECT_EQ(status_of(service_).identifiers, 0u) << "nobody sees them any more";
  EXPECT_TRUE(service_.owes_farewells()) << "the agent must not end yet";
  size_t rounds = 0;
  for (size_t before = left(); !is_clear(); before = left(), ++rounds) {
    loop_.run_round();
    EXPECT_LE(before - left(), GoneClients::kAtOnce);
    ASSERT_LT(rounds, 10u);
  }
  EXPECT_GE(rounds, 3u);
  EXPECT_EQ(left(), 0u);
  EXPECT_FALSE(service_.owes_farewells());
}

TEST_F(GoneClientsTest, OneThatHasLittleIsDoneWithAtOnce) {
  Program small = program();
  small.create_many(GoneClients::kAtOnce / 2);
  small.end();
  EXPECT_TRUE(is_clear());
  EXPECT_EQ(left(), 0u);
}

// The kernel destroys them all before it answers; here only nobody meets them any more.
TEST_F(GoneClientsTest, WhatGoesWithAnEventChannelIsClearedAwayLittleByLittle) {
  Program large = program();
  const uint32_t bound = large.create();
  ASSERT_EQ(large.bind(bound, kPort), 0);
  large.create_many(GoneClients::kAtOnce * 4);
  ASSERT_EQ(large.close(), 0);
  EXPECT_EQ(large.bind(bound, kPort + 1), ENOENT);
  EXPECT_EQ(large.close(), ENOENT);
  EXPECT_FALSE(is_clear());
  Program other = program(kOtherUser);
  EXPECT_EQ(other.bind(other.create(), kPort), 0);
  for (size_t before = left(); !is_clear(); before = left()) {
    loop_.run_round();
    EXPECT_LE(before - left(), GoneClients::kAtOnce);
  }
  EXPECT_EQ(left(), 0u);
}

TEST_F(GoneClientsTest, IdentifiersOfOtherEventChannelsStay) {
  Program two = program();
  const uint32_t stays = two.create(2u);
  two.create_many(GoneClients::kAtOnce * 2);
  ASSERT_EQ(two.close(), 0);
  while (!is_clear()) loop_.run_round();
  EXPECT_EQ(left(), 1u);
  EXPECT_EQ(two.bind(stays, kPort), 0);
}

// A server that is started again the moment after it has ended finds its port free.
TEST_F(GoneClientsTest, APortIsFreeAsSoonAsItsProgramHasEnded) {
  Program server = program();
  for (uint16_t port = kPort; port < kPort + 1000; ++port) ASSERT_EQ(server.bind(server.create(), port), 0);
  Program other = program(kOtherUser);
  EXPECT_EQ(other.bind(other.create(), kPort), EADDRNOTAVAIL);
  server.end();
  ASSERT_FALSE(is_clear()) << "else nothing is tried";
  for (uint16_t port = kPort; port < kPort + 1000; ++port) ASSERT_EQ(other.bind(other.create(), port), 0);
  while (!is_clear()) loop_.run_round();
  Program third = program();
  EXPECT_EQ(third.bind(third.create(), kPort), EADDRNOTAVAIL) << "what was cleared away was not the other's";
}

TEST_F(GoneClientsTest, WhatAUserHasLeftIsNotInTheWayOfItsNextProgram) {
  Program first = program();
  Program second = program();
  first.create_many(ClientLimits::kMaxIdentifiers);
  second.create_many(ClientLimits::kMaxIdentifiers);
  Program third = program();
  EXPECT_EQ(third.create(), 0u) << "the user has all that it may have";
  first.end();
  third.create_many(3 * GoneClients::kAtOnce);
}

// An agent that ends knows nothing of programs that have ended before it, and the next one is to know
// nothing.
TEST_F(GoneClientsTest, AnAgentThatEndsClearsAwayTheRest) {
  Program large = program(kOtherUser);
  for (uint16_t port = kPort; port < kPort + 1000; ++port) ASSERT_EQ(large.bind(large.create(), port), 0);
  large.end();
  EXPECT_TRUE(service_.ledger().has_others());
  service_.abandon();
  EXPECT_FALSE(service_.ledger().has_others());
}

}  // namespace
}  // namespace verbena::agent
