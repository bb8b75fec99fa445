// SPDX-License-Identifier: Apache-2.0
// Datagram rsockets.
#include <thread>

#include "libraries/rsockets/support/rsockets.h"

namespace verbena::rsockets::testing {
namespace {

struct Datagrams : ::testing::TestWithParam<int> {
  static Rsocket bound() {
    Rsocket socket(::rsocket(GetParam(), SOCK_DGRAM, 0));
    EXPECT_GE(socket, 0) << errno;
    Loopback here(GetParam());
    EXPECT_EQ(::rbind(socket, here.get(), here.size()), 0) << errno;
    return socket;
  }
  static void send_to(int from, int to, const std::string& text) {
    Loopback there(GetParam(), port_of(to));
    ASSERT_EQ(::rsendto(from, text.data(), text.size(), 0, there.get(), there.size()),
              static_cast<ssize_t>(text.size()))
        << errno;
  }
};

TEST_P(Datagrams, ArriveWithTheirSource) {
  const Rsocket one = bound();
  const Rsocket other = bound();
  // The first datagrams use UDP, later ones go from QP to QP. Programs see no difference.
  for (int i = 0; i < 200; ++i) {
    send_to(one, other, "to " + std::to_string(i));
    sockaddr_in6 source{};
    socklen_t length = sizeof source;
    char buffer[100];
    const ssize_t got =
        ::rrecvfrom(other, buffer, sizeof buffer, 0, reinterpret_cast<sockaddr*>(&source), &length);
    ASSERT_GT(got, 0) << errno;
    ASSERT_EQ(std::string(buffer, static_cast<size_t>(got)), "to " + std::to_string(i));
    ASSERT_EQ(source.sin6_family, GetParam());
    ASSERT_EQ(source.sin6_port, port_of(one));
    ASSERT_EQ(
        ::rsendto(other, buffer, static_cast<size_t>(got), 0, reinterpret_cast<sockaddr*>(&source), length),
        got);
    ASSERT_EQ(receive_text(one), "to " + std::to_string(i));
  }
}

TEST_P(Datagrams, ConnectedSocketNeedsNoAddress) {
  const Rsocket server = bound();
  Rsocket client(::rsocket(GetParam(), SOCK_DGRAM, 0));
  Loopback there(GetParam(), port_of(server));
  EXPECT_EQ(::rsend(client, "x", 1, 0), -1);
  EXPECT_EQ(errno, EDESTADDRREQ);
  ASSERT_EQ(::rconnect(client, there.get(), there.size()), 0) << errno;
  for (int i = 0; i < 50; ++i) {
    send_text(client, "ping");
    ASSERT_EQ(receive_text(server), "ping");
  }
}

TEST_P(Datagrams, ConnectedSocketsHearEachOther) {
  const Rsocket one = bound();
  const Rsocket other = bound();
  for (const auto& [from, to] : {std::pair(&one, &other), std::pair(&other, &one)}) {
    Loopback there(GetParam(), port_of(*to));
    ASSERT_EQ(::rconnect(*from, there.get(), there.size()), 0) << errno;
  }
  for (int i = 0; i < 50; ++i) {
    send_text(one, "ping");
    ASSERT_EQ(receive_text(other), "ping");
    send_text(other, "pong");
    ASSERT_EQ(receive_text(one), "pong");
  }
}

TEST_P(Datagrams, AreWholeOrCut) {
  const Rsocket one = bound();
  const Rsocket other = bound();
  for (int i = 0; i < 20; ++i) {
    send_to(one, other, "hello");
    ASSERT_NE(poll_for(other, POLLIN) & POLLIN, 0);
    EXPECT_EQ(receive_text(other, 3, MSG_PEEK), "hel");
    EXPECT_EQ(receive_text(other, 3), "hel");
    EXPECT_EQ(poll_for(other, POLLIN, 0), 0) << "the rest is gone";
  }
}

TEST_P(Datagrams, CarryAsMuchAsABufferHolds) {
  const Rsocket one = bound();
  const Rsocket other = bound();
  const std::string large(2000, 'x');
  for (int i = 0; i < 20; ++i) {
    send_to(one, other, large);
    ASSERT_EQ(receive_text(other, 4000), large);
  }
  Loopback there(GetParam(), port_of(other));
  const std::string too_large(3000, 'x');
  EXPECT_EQ(::rsendto(one, too_large.data(), too_large.size(), 0, there.get(), there.size()), -1);
  EXPECT_EQ(errno, EMSGSIZE);
}

TEST_P(Datagrams, WakeAThreadThatWaits) {
  const Rsocket one = bound();
  const Rsocket other = bound();
  std::thread reader([&] {
    for (int i = 0; i < 100; ++i) {
      ASSERT_EQ(poll_for(other, POLLIN), POLLIN);
      ASSERT_EQ(receive_text(other, 100, MSG_DONTWAIT), "ping");
      send_to(other, one, "pong");
    }
  });
  for (int i = 0; i < 100; ++i) {
    send_to(one, other, "ping");
    ASSERT_EQ(receive_text(one), "pong") << i;
  }
  reader.join();
}

TEST_P(Datagrams, ForeignUdpIsNotHeard) {
  const Rsocket server = bound();
  const int plain = ::socket(GetParam(), SOCK_DGRAM, 0);
  Loopback there(GetParam(), port_of(server));
  ASSERT_EQ(::sendto(plain, "nonsense, but long enough for a header", 38, 0, there.get(), there.size()), 38);
  ::close(plain);
  const Rsocket other = bound();
  send_to(other, server, "sense");
  EXPECT_EQ(receive_text(server), "sense");
}

TEST_P(Datagrams, NothingThereIsEagain) {
  const Rsocket one = bound();
  set_nonblocking(one);
  char byte;
  EXPECT_EQ(::rrecv(one, &byte, 1, 0), -1);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_EQ(poll_for(one, POLLOUT, 0), POLLOUT);
}

INSTANTIATE_TEST_SUITE_P(OfBothFamilies, Datagrams, ::testing::Values(AF_INET, AF_INET6),
                         [](const auto& of) { return of.param == AF_INET ? "Ipv4" : "Ipv6"; });

}  // namespace
}  // namespace verbena::rsockets::testing
