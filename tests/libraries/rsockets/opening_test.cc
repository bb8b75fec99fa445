// SPDX-License-Identifier: Apache-2.0
// Connections are established, or fail with the error of a socket.
#include <csignal>
#include <thread>

#include "adapter/objects/support/environment.h"
#include "agent/agent_process.h"
#include "base/route_search.h"
#include "base/silent_neighbours.h"
#include "libraries/rsockets/support/rsockets.h"

namespace verbena::rsockets::testing {
namespace {

using test::is_silent;
using test::searches;

// Returns a port on which no socket listens.
in_port_t deserted_port() {
  return port_of(listener());
}

TEST(Opening, OtherKindsOfSocketAreRefused) {
  const struct {
    int domain, type, protocol;
  } kinds[] = {{AF_UNIX, SOCK_STREAM, 0},
               {AF_INET, SOCK_RAW, 0},
               {AF_INET, SOCK_STREAM, IPPROTO_UDP},
               {AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0}};
  for (const auto& [domain, type, protocol] : kinds) {
    EXPECT_EQ(::rsocket(domain, type, protocol), -1);
    EXPECT_EQ(errno, EOPNOTSUPP);
  }
}

TEST(Opening, RefusedWhereNobodyListens) {
  Rsocket socket(::rsocket(AF_INET, SOCK_STREAM, 0));
  EXPECT_EQ(connect_to(socket, deserted_port()), -1);
  EXPECT_EQ(errno, ECONNREFUSED);
}

TEST(Opening, CanBeTriedAgainAfterARefusal) {
  Rsocket socket(::rsocket(AF_INET, SOCK_STREAM, 0));
  ASSERT_EQ(connect_to(socket, deserted_port()), -1);
  const Rsocket from = listener();
  EXPECT_EQ(connect_to(socket, port_of(from)), 0) << errno;
}

TEST(Opening, CanBeTriedAgainAfterNoAgentWasThere) {
  using adapter::testing::Environment;
  adapter::testing::isolated([] {
    Rsocket socket(::rsocket(AF_INET, SOCK_STREAM, 0));
    ASSERT_EQ(connect_to(socket, deserted_port()), -1);
    Environment::kill_agent(SIGKILL);
    EXPECT_EQ(connect_to(socket, 7471), -1);
    EXPECT_EQ(errno, ECONNREFUSED);
    sockaddr_in name{};
    socklen_t length = sizeof name;
    EXPECT_EQ(::rgetsockname(socket, reinterpret_cast<sockaddr*>(&name), &length), 0);
    Environment::start_agent();
    const Rsocket from = listener();
    EXPECT_EQ(connect_to(socket, port_of(from)), 0) << errno;
  });
}

TEST(Opening, WithoutBlockingIsInProgressThenWritable) {
  const Rsocket from = listener();
  Rsocket socket(::rsocket(AF_INET, SOCK_STREAM, 0));
  set_nonblocking(socket);
  ASSERT_EQ(connect_to(socket, port_of(from)), -1);
  ASSERT_EQ(errno, EINPROGRESS);
  EXPECT_EQ(poll_for(socket, POLLOUT), POLLOUT);
  EXPECT_EQ(option(socket, SOL_SOCKET, SO_ERROR), 0);
  EXPECT_EQ(connect_to(socket, port_of(from)), 0) << "as a socket says it once";
  EXPECT_EQ(connect_to(socket, port_of(from)), -1);
  EXPECT_EQ(errno, EISCONN);
}

TEST(Opening, WithoutBlockingTellsOfARefusalBySoError) {
  Rsocket socket(::rsocket(AF_INET, SOCK_STREAM, 0));
  set_nonblocking(socket);
  ASSERT_EQ(connect_to(socket, deserted_port()), -1);
  ASSERT_EQ(errno, EINPROGRESS);
  EXPECT_NE(poll_for(socket, POLLOUT) & POLLERR, 0);
  EXPECT_EQ(option(socket, SOL_SOCKET, SO_ERROR), ECONNREFUSED);
  EXPECT_EQ(option(socket, SOL_SOCKET, SO_ERROR), 0) << "once";
}

TEST(Opening, SendingOnAnUnconnectedSocketIsEnotconn) {
  Rsocket socket(::rsocket(AF_INET, SOCK_STREAM, 0));
  char byte = 0;
  EXPECT_EQ(::rsend(socket, &byte, 1, 0), -1);
  EXPECT_EQ(errno, ENOTCONN);
  EXPECT_EQ(::rrecv(socket, &byte, 1, 0), -1);
  EXPECT_EQ(errno, ENOTCONN);
  EXPECT_EQ(::rshutdown(socket, SHUT_RDWR), -1);
  EXPECT_EQ(errno, ENOTCONN);
}

TEST(Opening, BoundPortIsTaken) {
  const Rsocket first = listener();
  Rsocket second(::rsocket(AF_INET, SOCK_STREAM, 0));
  Loopback same(AF_INET, port_of(first));
  EXPECT_EQ(::rbind(second, same.get(), same.size()), -1);
  EXPECT_EQ(errno, EADDRNOTAVAIL);  // as on the kernel's devices: loopback counts as a wildcard
}

TEST(Accepting, WithoutBlockingIsEagainUntilSomebodyComes) {
  const Rsocket from = listener();
  set_nonblocking(from);
  EXPECT_EQ(::raccept(from, nullptr, nullptr), -1);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_EQ(poll_for(from, POLLIN, 0), 0);
  const Rsocket client = connected_to(port_of(from));
  EXPECT_EQ(poll_for(from, POLLIN), POLLIN);
  sockaddr_in peer{};
  socklen_t length = sizeof peer;
  const Rsocket server(::raccept(from, reinterpret_cast<sockaddr*>(&peer), &length));
  ASSERT_GE(server, 0) << errno;
  EXPECT_EQ(peer.sin_port, port_of(client));
  EXPECT_EQ(::rfcntl(server, F_GETFL) & O_NONBLOCK, 0) << "not inherited";
}

TEST(Accepting, ThoseBeyondTheBacklogWaitAndAreServedInTheEnd) {
  const Rsocket from = listener(1);
  std::vector<Rsocket> clients;
  for (int i = 0; i < 2; ++i) clients.push_back(connected_to(port_of(from)));
  for (int i = 0; i < 10; ++i) {
    clients.emplace_back(::rsocket(AF_INET, SOCK_STREAM, 0));
    set_nonblocking(clients.back());
    EXPECT_EQ(connect_to(clients.back(), port_of(from)), -1);
    EXPECT_EQ(errno, EINPROGRESS);
  }
  const Pair later;  // its request was handled after those of the clients
  for (size_t i = 2; i < clients.size(); ++i) {
    EXPECT_EQ(poll_for(clients[i], POLLOUT, 0), 0) << "a backlog of one takes two, as TCP does";
  }
  std::vector<Rsocket> servers;
  for (size_t i = 0; i < clients.size(); ++i) servers.emplace_back(::raccept(from, nullptr, nullptr));
  for (const Rsocket& client : clients) EXPECT_EQ(poll_for(client, POLLOUT), POLLOUT);
}

// One thread serves all rsockets of a process.
class SilentRequester : public ::testing::Test {
 protected:
  SilentRequester() {
    searches = 0;
    is_silent = true;
    set_nonblocking(client_);
    Loopback there(AF_INET6, port_of(from_));
    EXPECT_EQ(::rconnect(client_, there.get(), there.size()), -1);
    EXPECT_EQ(errno, EINPROGRESS);
    EXPECT_TRUE(test::eventually([] { return searches > 1; }));
  }
  ~SilentRequester() override { is_silent = false; }

  const Rsocket from_ = listener(0, AF_INET6);
  const Rsocket client_{::rsocket(AF_INET6, SOCK_STREAM, 0)};
};

TEST_F(SilentRequester, HoldsUpNobody) {
  const Pair others(listener(), AF_INET);
  send_text(others.client, "served");
  EXPECT_EQ(receive_text(others.server), "served");
}

TEST_F(SilentRequester, IsServedWhenItAnswers) {
  is_silent = false;
  const Rsocket server(::raccept(from_, nullptr, nullptr));
  ASSERT_GE(server, 0) << errno;
  EXPECT_EQ(poll_for(client_, POLLOUT), POLLOUT);
}

TEST_F(SilentRequester, IsRefusedInTheEnd) {
  EXPECT_NE(poll_for(client_, POLLOUT) & POLLERR, 0);
  EXPECT_EQ(option(client_, SOL_SOCKET, SO_ERROR), ECONNREFUSED);
}

TEST(Accepting, ClosedListenerEndsThoseItDidNotAccept) {
  Rsocket from = listener();
  const Rsocket client = connected_to(port_of(from));
  from.close();
  // End of file; or a refusal, if the listener did not know yet that the client had its answer.
  char byte;
  EXPECT_LE(::rrecv(client, &byte, sizeof byte, 0), 0);
}

TEST(Accepting, OneListenerServesManyClients) {
  const Rsocket from = listener();
  std::vector<Rsocket> clients, servers;
  for (int i = 0; i < 20; ++i) {
    clients.push_back(connected_to(port_of(from)));
    servers.emplace_back(::raccept(from, nullptr, nullptr));
    send_text(clients.back(), std::to_string(i));
  }
  for (int i = 0; i < 20; ++i) EXPECT_EQ(receive_text(servers[static_cast<size_t>(i)]), std::to_string(i));
}

}  // namespace
}  // namespace verbena::rsockets::testing
