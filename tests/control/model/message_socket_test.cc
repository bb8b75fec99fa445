// SPDX-License-Identifier: Apache-2.0
#include "control/model/message_socket.h"

#include <array>
#include <cerrno>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

namespace verbena::control {
namespace {

class MessageSocket : public ::testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    here_.reset(ends[0]);
    there_.reset(ends[1]);
    null_.reset(::open("/dev/null", O_RDONLY));
  }
  Result<Received> receive(size_t max_fds = protocol::kMaxMessageFds) {
    return receive_message(there_.get(), std::as_writable_bytes(std::span(buffer_)), max_fds);
  }
  UniqueFd here_;
  UniqueFd there_;
  UniqueFd null_;
  std::array<char, 16> buffer_{};
};

TEST_F(MessageSocket, PassesAMessageWithItsDescriptors) {
  const int fds[] = {null_.get(), null_.get()};
  ASSERT_TRUE(send_message(here_.get(), std::as_bytes(std::span("hello")), fds));
  const auto received = receive();
  ASSERT_TRUE(received);
  EXPECT_EQ(std::string(buffer_.data(), received->bytes), std::string("hello\0", 6));
  EXPECT_FALSE(received->truncated);
  ASSERT_EQ(received->fds.size(), 2u);
  for (const UniqueFd& fd : received->fds) EXPECT_EQ(::fcntl(fd.get(), F_GETFD), FD_CLOEXEC);
}

TEST_F(MessageSocket, SaysWhenAMessageWasLongerThanTheBuffer) {
  const std::vector<std::byte> message(17);
  ASSERT_TRUE(send_message(here_.get(), message));
  const auto received = receive();
  ASSERT_TRUE(received);
  EXPECT_TRUE(received->truncated);
}

TEST_F(MessageSocket, TakesNoMoreDescriptorsThanAskedFor) {
  for (size_t max = 0; max <= 5; ++max) {
    const std::vector<int> fds(max + 1, null_.get());
    ASSERT_TRUE(send_message(here_.get(), std::as_bytes(std::span("x")), fds));
    const auto received = receive(max);
    ASSERT_TRUE(received);
    EXPECT_TRUE(received->truncated) << max;
    EXPECT_LE(received->fds.size(), max);
  }
}

TEST_F(MessageSocket, NeverBlocksAndNeverRaisesASignal) {
  EXPECT_EQ(receive().error().code, EAGAIN);
  const std::vector<std::byte> message(1000);
  Result<void> sent;
  for (int i = 0; i < 100000 && sent; ++i) sent = send_message(here_.get(), message);
  ASSERT_FALSE(sent);
  EXPECT_EQ(sent.error().code, EAGAIN);
  while (receive()) {
  }
  there_.reset();
  EXPECT_EQ(send_message(here_.get(), message).error().code, EPIPE);
}

TEST_F(MessageSocket, SaysWhenTheOtherEndIsGone) {
  here_.reset();
  const auto received = receive();
  ASSERT_TRUE(received);
  EXPECT_EQ(received->bytes, 0u);
}

}  // namespace
}  // namespace verbena::control
