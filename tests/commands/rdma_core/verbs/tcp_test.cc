// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <thread>

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "commands/rdma_core/verbs/pingpong/exchange.h"

namespace verbena::rdma_core {
namespace {

using testing::HasSubstr;

// The two ends of a connection.
struct Ends {
  Ends() {
    int fds[2] = {};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    one.reset(fds[0]);
    other.reset(fds[1]);
  }
  UniqueFd one, other;
};

int port_of(const UniqueFd& fd) {
  sockaddr_in6 address = {};
  socklen_t size = sizeof address;
  getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.sin6_port);
}

TEST(Tcp, ReadsWhatComesInPieces) {
  Ends ends;
  std::jthread writer([&] {
    for (const char each : std::string("abcdef")) write_all(ends.other, std::string(1, each));
  });
  std::string read;
  EXPECT_TRUE(read_exactly(ends.one, 6, read));
  EXPECT_EQ(read, "abcdef");
}

TEST(Tcp, LeavesWhatIsBehindTheMessage) {
  Ends ends;
  ASSERT_TRUE(write_all(ends.other, "abcdef"));
  std::string read;
  EXPECT_TRUE(read_exactly(ends.one, 4, read));
  EXPECT_EQ(read, "abcd");
  EXPECT_TRUE(read_exactly(ends.one, 2, read));
  EXPECT_EQ(read, "ef");
}

TEST(Tcp, AnEndInTheMiddleIsNoMessage) {
  Ends ends;
  ASSERT_TRUE(write_all(ends.other, "abc"));
  ends.other.reset();
  std::string read;
  EXPECT_FALSE(read_exactly(ends.one, 4, read));
  EXPECT_EQ(read, "abc");
  EXPECT_THAT(reason(errno), HasSubstr("ended the connection"));
}

TEST(Tcp, WritingToWhoIsGoneIsAnErrorAndNoSignal) {
  Ends ends;
  ends.other.reset();
  EXPECT_FALSE(write_all(ends.one, "abc"));
  EXPECT_EQ(errno, EPIPE);
}

TEST(Tcp, ServersHearIpv4) {
  const UniqueFd listening = listen_on(0, 1);
  ASSERT_TRUE(listening);
  const UniqueFd client = connect_to("127.0.0.1", port_of(listening));
  ASSERT_TRUE(client);
  EXPECT_TRUE(accept_on(listening));
}

TEST(Tcp, ASecondServerOfThePortIsToldWhy) {
  const UniqueFd first = listen_on(0, 1);
  ASSERT_TRUE(first);
  testing::internal::CaptureStderr();
  EXPECT_THROW(listen_on(port_of(first), 1), Failure);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("Address already in use (another server has it"));
}

TEST(Tcp, AClientWithoutAServerIsToldWhy) {
  UniqueFd listening = listen_on(0, 1);
  const int port = port_of(listening);
  listening.reset();
  testing::internal::CaptureStderr();
  EXPECT_THROW(connect_to("127.0.0.1", port), Failure);
  EXPECT_THAT(
      testing::internal::GetCapturedStderr(),
      testing::StartsWith("Couldn't connect to 127.0.0.1:" + std::to_string(port) + ": Connection refused"));
}

}  // namespace
}  // namespace verbena::rdma_core
