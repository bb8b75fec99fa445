// SPDX-License-Identifier: Apache-2.0
// Peers that are killed, children of fork(), keepalive, options, and threads that use an rsocket which
// another closes.
#include <csignal>
#include <thread>

#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/wait.h>
#include <unistd.h>

#include "adapter/objects/support/helper.h"
#include "libraries/rsockets/support/rsockets.h"

namespace verbena::rsockets::testing {
namespace {

using adapter::testing::Helper;
using adapter::testing::HelperBody;
using adapter::testing::Line;

const HelperBody killed_peer("rsocket that is killed", [](Line& line) {
  const Rsocket socket = connected_to(line.hear<in_port_t>());
  send_text(socket, "alive");
  line.await_end();
});

TEST(Lifetime, KilledPeerIsTheEndOfTheStream) {
  const Rsocket from = listener();
  Helper peer = Helper::start("rsocket that is killed");
  peer.line().tell(port_of(from));
  const Rsocket server(::raccept(from, nullptr, nullptr));
  ASSERT_GE(server, 0);
  EXPECT_EQ(receive_text(server), "alive");
  peer.kill(SIGKILL);
  peer.wait();
  EXPECT_EQ(receive_text(server), "");
  EXPECT_EQ(::rsend(server, "x", 1, 0), -1);
  EXPECT_EQ(errno, ECONNRESET);
}

TEST(Lifetime, ChildOfForkCanOnlyClose) {
  Pair pair;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    char byte = 0;
    const bool refused = ::rsend(pair.client, &byte, 1, 0) == -1 && errno == EBADF;
    const bool closed = ::rclose(pair.client) == 0;
    ::_exit(refused && closed ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  send_text(pair.client, "the parent's goes on");
  EXPECT_EQ(receive_text(pair.server), "the parent's goes on");
}

TEST(Lifetime, ChildOfForkMakesRsocketsOfItsOwn) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer knows no threads in a child of a process with threads";
#endif
  const Rsocket from = listener();
  const in_port_t port = port_of(from);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    Rsocket socket = connected_to(port);
    send_text(socket, "from the child");
    socket.close();
    ::_exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  const Rsocket server(::raccept(from, nullptr, nullptr));
  EXPECT_EQ(receive_text(server), "from the child");
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// As with rdma-core's rsockets, executed programs inherit nothing.
TEST(Lifetime, IsNotPassedOnToProgramsThatAreExecuted) {
  Pair pair;
  for (const int number : {static_cast<int>(pair.client), static_cast<int>(pair.server)}) {
    EXPECT_NE(::fcntl(number, F_GETFD) & FD_CLOEXEC, 0);
  }
}

TEST(Lifetime, ThreadsMayUseWhatAnotherCloses) {
  for (int round = 0; round < 30; ++round) {
    Pair pair;
    const int number = pair.server;
    std::thread reader([number] {
      char byte;
      while (::rrecv(number, &byte, 1, 0) > 0) {
      }
    });
    std::thread writer([number] {
      while (::rsend(number, "x", 1, 0) > 0) {
      }
    });
    char byte;
    ASSERT_EQ(::rrecv(pair.client, &byte, 1, 0), 1);
    pair.server.close();
    reader.join();
    writer.join();
  }
}

TEST(Lifetime, AcceptEndsWhenTheListenerIsClosed) {
  Rsocket from = listener();
  const int number = from;
  std::thread acceptor([number] {
    EXPECT_EQ(::raccept(number, nullptr, nullptr), -1);
    EXPECT_EQ(errno, EBADF);
  });
  from.close();
  acceptor.join();
}

TEST(Options, AreThoseOfSockets) {
  Rsocket socket(::rsocket(AF_INET, SOCK_STREAM, 0));
  set_option(socket, SOL_SOCKET, SO_RCVBUF, 10000);
  EXPECT_EQ(option(socket, SOL_SOCKET, SO_RCVBUF), 20000) << "twice, as in the kernel";
  set_option(socket, SOL_SOCKET, SO_REUSEADDR, 1);
  EXPECT_EQ(option(socket, SOL_SOCKET, SO_REUSEADDR), 1);
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  EXPECT_EQ(option(socket, IPPROTO_TCP, TCP_NODELAY), 1);
  EXPECT_EQ(option(socket, SOL_SOCKET, SO_TYPE), SOCK_STREAM);
  set_option(socket, SOL_RDMA, RDMA_IOMAPSIZE, 300);
  EXPECT_EQ(option(socket, SOL_RDMA, RDMA_IOMAPSIZE), 256) << "as it can be told to the peer";
  int value = 0;
  EXPECT_EQ(::rsetsockopt(socket, SOL_SOCKET, SO_BROADCAST, &value, sizeof value), -1);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(::rsetsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &value, 1), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST(Options, OfTheDeviceAreSettledOnceConnected) {
  Pair pair;
  int value = 100;
  EXPECT_EQ(::rsetsockopt(pair.client, SOL_RDMA, RDMA_SQSIZE, &value, sizeof value), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_GE(option(pair.client, SOL_RDMA, RDMA_SQSIZE), 16);
  EXPECT_GE(option(pair.client, IPPROTO_TCP, TCP_MAXSEG), 256);
}

// iperf3 reads it every second at both ends.
TEST(Options, TellOfTheConnectionAsTcpInfo) {
  Pair pair;
  tcp_info info{};
  socklen_t length = sizeof info;
  ASSERT_EQ(::rgetsockopt(pair.server, IPPROTO_TCP, TCP_INFO, &info, &length), 0) << errno;
  EXPECT_EQ(info.tcpi_state, TCP_ESTABLISHED);
  EXPECT_GE(info.tcpi_snd_mss, 256u);
  uint8_t state = 0;
  length = sizeof state;  // as much as fits, as in the kernel
  ASSERT_EQ(::rgetsockopt(pair.client, IPPROTO_TCP, TCP_INFO, &state, &length), 0) << errno;
  EXPECT_EQ(length, sizeof state);
  EXPECT_EQ(state, TCP_ESTABLISHED);
}

// raccept() takes the lowest number that is free at the time of the call, as accept(2) does. librspreload
// takes a number of its own just before, and relies on getting the lower one.
TEST(Accepting, GivesANumberThatIsFreeAtThatTime) {
  const Rsocket listening = listener();
  Rsocket client(::rsocket(AF_INET, SOCK_STREAM, 0));
  Loopback there(AF_INET, port_of(listening));
  ASSERT_EQ(::rconnect(client, there.get(), there.size()), 0) << errno;
  pollfd entry{listening, POLLIN, 0};
  ASSERT_EQ(::rpoll(&entry, 1, 5000), 1);
  const int before = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  const Rsocket accepted(::raccept(listening, nullptr, nullptr));
  EXPECT_GT(accepted, before);
  ::close(before);
}

TEST(Keepalive, DisturbsNobody) {
  Pair pair;
  set_option(pair.client, IPPROTO_TCP, TCP_KEEPIDLE, 1);
  set_option(pair.client, SOL_SOCKET, SO_KEEPALIVE, 1);
  EXPECT_EQ(option(pair.client, SOL_SOCKET, SO_KEEPALIVE), 1);
  EXPECT_EQ(poll_for(pair.server, POLLIN, 1500), 0) << "the peer hears nothing of it";
  send_text(pair.client, "still here");
  EXPECT_EQ(receive_text(pair.server), "still here");
}

}  // namespace
}  // namespace verbena::rsockets::testing
