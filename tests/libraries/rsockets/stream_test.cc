// SPDX-License-Identifier: Apache-2.0
// Data sent on a connection arrive whole and in order, in any portions; and how streams end.
#include <algorithm>
#include <random>
#include <thread>

#include <sys/uio.h>

#include "base/seed.h"
#include "libraries/rsockets/support/rsockets.h"

namespace verbena::rsockets::testing {
namespace {

// Returns a byte of a stream; it follows from the byte's position.
uint8_t byte_at(uint64_t place) {
  return static_cast<uint8_t>(place * 2654435761u >> 13);
}

class Portions {
 public:
  explicit Portions(uint32_t seed) : generator_(seed) {}
  // Mostly small, sometimes far larger than all buffers.
  size_t next(uint64_t left) {
    const auto size = 1 + (generator_() % (1u << (1 + generator_() % 19)));
    return static_cast<size_t>(std::min<uint64_t>(left, size));
  }

 private:
  std::mt19937 generator_;
};

struct Manner {
  bool blocking;
  int flags;
};

void send_stream(int socket, uint64_t bytes, Manner manner, uint32_t seed) {
  Portions portions(seed);
  std::vector<uint8_t> buffer;
  for (uint64_t sent = 0; sent < bytes;) {
    buffer.resize(portions.next(bytes - sent));
    for (size_t i = 0; i < buffer.size(); ++i) buffer[i] = byte_at(sent + i);
    const ssize_t some = ::rsend(socket, buffer.data(), buffer.size(), manner.flags);
    if (some < 0) {
      ASSERT_EQ(errno, EAGAIN);
      ASSERT_FALSE(manner.blocking);
      ASSERT_NE(poll_for(socket, POLLOUT), 0) << "after " << sent;
      continue;
    }
    if (manner.blocking) {
      ASSERT_EQ(static_cast<size_t>(some), buffer.size());
    }
    sent += static_cast<uint64_t>(some);
  }
}

void receive_stream(int socket, uint64_t bytes, Manner manner, uint32_t seed) {
  Portions portions(seed + 1);
  std::vector<uint8_t> buffer;
  for (uint64_t got = 0; got < bytes;) {
    buffer.resize(portions.next(bytes - got));
    const ssize_t some = ::rrecv(socket, buffer.data(), buffer.size(), manner.flags);
    if (some < 0) {
      ASSERT_EQ(errno, EAGAIN);
      ASSERT_FALSE(manner.blocking);
      ASSERT_NE(poll_for(socket, POLLIN), 0) << "after " << got;
      continue;
    }
    ASSERT_GT(some, 0) << "the stream ended after " << got;
    if ((manner.flags & MSG_WAITALL) != 0) {
      ASSERT_EQ(static_cast<size_t>(some), buffer.size());
    }
    for (size_t i = 0; i < static_cast<size_t>(some); ++i) ASSERT_EQ(buffer[i], byte_at(got + i)) << got + i;
    got += static_cast<uint64_t>(some);
  }
}

class StreamIntegrity : public ::testing::TestWithParam<Manner> {};

TEST_P(StreamIntegrity, HoldsBothWaysAtOnce) {
  constexpr uint64_t kBytes = 8 << 20;
  const auto seed = static_cast<uint32_t>(test::seed());
  Pair pair;
  const Manner manner = GetParam();
  if (!manner.blocking) {
    set_nonblocking(pair.client);
    set_nonblocking(pair.server);
  }
  std::thread threads[] = {
      std::thread(send_stream, int{pair.client}, kBytes, manner, seed),
      std::thread(send_stream, int{pair.server}, kBytes, manner, seed + 2),
      std::thread(receive_stream, int{pair.client}, kBytes, manner, seed + 2),
      std::thread(receive_stream, int{pair.server}, kBytes, manner, seed),
  };
  for (std::thread& thread : threads) thread.join();
}

INSTANTIATE_TEST_SUITE_P(InEveryManner, StreamIntegrity,
                         ::testing::Values(Manner{true, 0}, Manner{true, MSG_WAITALL}, Manner{false, 0}),
                         [](const auto& of) {
                           if (!of.param.blocking) return "Nonblocking";
                           return of.param.flags == 0 ? "Blocking" : "WaitingForAll";
                         });

TEST(Stream, GoesThroughSmallBuffersAndQueues) {
  Rsocket from = listener();
  set_option(from, SOL_SOCKET, SO_RCVBUF, 1000);
  set_option(from, SOL_SOCKET, SO_SNDBUF, 1);
  set_option(from, SOL_RDMA, RDMA_SQSIZE, 16);
  set_option(from, SOL_RDMA, RDMA_RQSIZE, 16);
  set_option(from, SOL_RDMA, RDMA_INLINE, 0);
  Pair pair(from, AF_INET);
  constexpr uint64_t kBytes = 200000;
  std::thread echo([&] { receive_stream(pair.server, kBytes, {true, 0}, 1); });
  send_stream(pair.client, kBytes, {true, 0}, 2);
  echo.join();
  std::thread back([&] { receive_stream(pair.client, kBytes, {true, 0}, 3); });
  send_stream(pair.server, kBytes, {true, 0}, 4);
  back.join();
}

TEST(Stream, GoesOverIpv6) {
  Pair pair(AF_INET6);
  send_text(pair.client, "hello");
  EXPECT_EQ(receive_text(pair.server), "hello");
}

TEST(Stream, TellsBothItsAddresses) {
  Pair pair;
  sockaddr_in name{};
  socklen_t length = sizeof name;
  ASSERT_EQ(::rgetpeername(pair.client, reinterpret_cast<sockaddr*>(&name), &length), 0);
  EXPECT_EQ(length, sizeof name);
  EXPECT_EQ(name.sin_port, port_of(pair.server));
  ASSERT_EQ(::rgetpeername(pair.server, reinterpret_cast<sockaddr*>(&name), &length), 0);
  EXPECT_EQ(name.sin_port, port_of(pair.client));
  EXPECT_EQ(name.sin_addr.s_addr, htonl(INADDR_LOOPBACK));
}

TEST(Stream, PeekLeavesTheBytesThere) {
  Pair pair;
  send_text(pair.client, "hello");
  ASSERT_EQ(poll_for(pair.server, POLLIN), POLLIN);
  EXPECT_EQ(receive_text(pair.server, 3, MSG_PEEK), "hel");
  EXPECT_EQ(receive_text(pair.server, 100, MSG_PEEK), "hello");
  EXPECT_EQ(receive_text(pair.server), "hello");
}

TEST(Stream, MessagesAreGatheredAndScattered) {
  Pair pair;
  char first[] = "one", second[] = "two", third[] = "three";
  iovec pieces[] = {{first, 3}, {second, 3}, {third, 5}};
  EXPECT_EQ(::rwritev(pair.client, pieces, 3), 11);
  char a[4], b[100];
  iovec places[] = {{a, 4}, {b, 100}};
  msghdr message{};
  message.msg_iov = places;
  message.msg_iovlen = 2;
  ASSERT_EQ(::rrecvmsg(pair.server, &message, 0), 11);
  EXPECT_EQ(std::string(a, 4) + std::string(b, 7), "onetwothree");
}

TEST(Stream, NothingThereIsEagainAndNoEnd) {
  Pair pair;
  char byte;
  EXPECT_EQ(::rrecv(pair.client, &byte, 1, MSG_DONTWAIT), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST(Stream, SenderStopsWhenTheReaderDoesNotReadAndGoesOnWhenItDoes) {
  Pair pair;
  set_nonblocking(pair.client);
  const std::vector<char> block(10000, 'x');
  size_t sent = 0;
  for (;;) {
    const ssize_t some = ::rsend(pair.client, block.data(), block.size(), 0);
    if (some > 0) {
      sent += static_cast<size_t>(some);
      continue;
    }
    ASSERT_EQ(errno, EAGAIN);
    if (poll_for(pair.client, POLLOUT, 100) == 0) break;
  }
  EXPECT_LE(sent, size_t{1} << 18) << "more than fits the peer's buffer";
  std::vector<char> all(sent);
  ASSERT_EQ(::rrecv(pair.server, all.data(), all.size(), MSG_WAITALL), static_cast<ssize_t>(sent));
  EXPECT_EQ(poll_for(pair.client, POLLOUT), POLLOUT);
}

TEST(StreamEnd, BytesBeforeItAreReadFirst) {
  Pair pair;
  send_text(pair.client, "last words");
  pair.client.close();
  EXPECT_EQ(receive_text(pair.server), "last words");
  EXPECT_EQ(receive_text(pair.server), "");
  EXPECT_EQ(receive_text(pair.server), "") << "the end stays";
}

TEST(StreamEnd, HalfClosedStreamGoesOnTheOtherWay) {
  Pair pair;
  send_text(pair.client, "question");
  ASSERT_EQ(::rshutdown(pair.client, SHUT_WR), 0);
  EXPECT_EQ(receive_text(pair.server), "question");
  EXPECT_EQ(receive_text(pair.server), "");
  send_text(pair.server, "answer");
  EXPECT_EQ(receive_text(pair.client), "answer");
  EXPECT_EQ(::rsend(pair.client, "x", 1, 0), -1);
  EXPECT_EQ(errno, EPIPE);
  pair.server.close();
  EXPECT_EQ(receive_text(pair.client), "");
}

TEST(StreamEnd, SendingToOneWhoIsGoneFails) {
  Pair pair;
  pair.server.close();
  EXPECT_EQ(receive_text(pair.client), "");
  EXPECT_EQ(::rsend(pair.client, "x", 1, 0), -1);
  EXPECT_EQ(errno, ECONNRESET);
}

TEST(StreamEnd, WakesAThreadThatWaits) {
  Pair pair;
  std::thread reader([&] { EXPECT_EQ(receive_text(pair.server), ""); });
  pair.client.close();
  reader.join();
}

TEST(StreamEnd, WakesThreadsOfOurOwnThatWait) {
  Pair pair;
  std::thread reader([&] {
    char byte;
    EXPECT_EQ(::rrecv(pair.server, &byte, 1, 0), 0);
  });
  EXPECT_EQ(::rshutdown(pair.server, SHUT_RDWR), 0);
  reader.join();
}

TEST(StreamEnd, ClosedNumberIsNoSocketAnyMore) {
  Pair pair;
  const int number = pair.client;
  pair.client.close();
  EXPECT_EQ(::rsend(number, "x", 1, 0), -1);
  EXPECT_EQ(errno, EBADF);
  EXPECT_EQ(::rclose(number), -1);
  EXPECT_EQ(errno, EBADF);
}

}  // namespace
}  // namespace verbena::rsockets::testing
