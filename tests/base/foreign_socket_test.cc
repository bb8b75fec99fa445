// SPDX-License-Identifier: Apache-2.0
// Messages of another process that bring a descriptor whose close takes half a minute. Receiving them never
// blocks, and no descriptor stays open.
#include "base/foreign_socket.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <span>

#include "base/lingering_socket.h"

namespace verbena {
namespace {

using test::becomes_true;
using test::is_discarding;
using test::LingeringSocket;
using test::open_descriptors;

class Foreign : public testing::Test {
 protected:
  Foreign() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    ours = ForeignSocket(UniqueFd(ends[0]));
    other.reset(ends[1]);
  }
  // Waits until all descriptors are closed, so that the next test counts only its own.
  ~Foreign() override {
    ours.hang_up();
    test::await_discards();
  }

  void say(size_t bytes, std::span<const int> files = {}) const {
    std::array<std::byte, 64> message{};
    iovec data{message.data(), bytes};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(4 * sizeof(int))> control{};
    msghdr header{};
    header.msg_iov = &data;
    header.msg_iovlen = 1;
    if (!files.empty()) {
      header.msg_control = control.data();
      header.msg_controllen = CMSG_SPACE(files.size_bytes());
      cmsghdr* const at = CMSG_FIRSTHDR(&header);
      at->cmsg_level = SOL_SOCKET;
      at->cmsg_type = SCM_RIGHTS;
      at->cmsg_len = CMSG_LEN(files.size_bytes());
      std::memcpy(CMSG_DATA(at), files.data(), files.size_bytes());
    }
    ASSERT_EQ(::sendmsg(other.get(), &header, MSG_NOSIGNAL), static_cast<ssize_t>(bytes));
  }
  // Sends `slow` and closes our copy: only the message holds the socket then.
  void say(size_t bytes, LingeringSocket& slow) const {
    const int file = slow.fd();
    say(bytes, {&file, 1});
    slow.reset();
  }
  Result<ForeignMessage> look(ForeignSocket::Room room = {}) { return ours.look(buffer, room); }
  bool is_hung_up_on() const {
    char byte;
    for (;;) {
      const ssize_t bytes = ::recv(other.get(), &byte, sizeof byte, MSG_DONTWAIT);
      if (bytes <= 0) return bytes == 0 || errno != EAGAIN;
    }
  }

  std::array<std::byte, 32> buffer;
  ForeignSocket ours;
  UniqueFd other;
};

TEST_F(Foreign, AMessageStaysTheNextUntilItIsDropped) {
  say(3);
  say(5);
  EXPECT_EQ(look()->bytes, 3u);
  EXPECT_EQ(look()->bytes, 3u);
  ours.drop();
  EXPECT_EQ(look()->bytes, 5u);
  ours.drop();
  EXPECT_EQ(look().error().code, EAGAIN);
}

TEST_F(Foreign, AMessageLongerThanTheBufferSaysSo) {
  say(33);
  EXPECT_TRUE(look()->is_longer);
  ours.drop();
  EXPECT_EQ(look().error().code, EAGAIN) << "it goes as a whole";
}

TEST_F(Foreign, WhoSaysItIsTheKernelsWord) {
  const int on = 1;
  ASSERT_EQ(::setsockopt(ours.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on), 0);
  say(3);
  EXPECT_EQ(look({.sender = true})->sender->pid, ::getpid());
}

TEST_F(Foreign, AFileIsTheSameThatWasSent) {
  const UniqueFd file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const int sent = file.get();
  say(3, {&sent, 1});
  const auto message = look({.file = true});
  ASSERT_TRUE(message->file);
  EXPECT_FALSE(message->has_more_files);
  EXPECT_EQ(::fcntl(message->file.get(), F_GETFD), FD_CLOEXEC);
}

TEST_F(Foreign, FilesThatNobodyAskedForAreNotOpened) {
  const UniqueFd file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const std::array<int, 3> sent{file.get(), file.get(), file.get()};
  say(3, sent);
  const size_t before = open_descriptors();
  EXPECT_TRUE(look()->has_more_files);
  EXPECT_EQ(open_descriptors(), before);
  {
    const auto message = look({.file = true});
    EXPECT_TRUE(message->has_more_files);
    EXPECT_EQ(open_descriptors(), before + 1) << "one, as there is room for";
  }
}

TEST_F(Foreign, ToLookAtWhatTakesLongToCloseTakesNoTime) {
  const size_t before = open_descriptors();
  LingeringSocket slow;
  say(1, slow);
  const TimePoint began = MonotonicClock::now();
  EXPECT_TRUE(look()->has_more_files);
  EXPECT_TRUE(look({.file = true})->file);
  EXPECT_LT(MonotonicClock::now() - began, LingeringSocket::kAtOnce);
  slow.cut_short();
  EXPECT_TRUE(becomes_true([&] { return open_descriptors() == before; }));
}

// Starts no thread: nothing here can take long to close.
TEST_F(Foreign, WhatBringsNothingIsClosedHere) {
  const size_t before = open_descriptors();
  for (const size_t bytes : {0, 1, 64, 0}) say(bytes);
  ours.hang_up();
  EXPECT_EQ(open_descriptors(), before - 1);
  EXPECT_TRUE(is_hung_up_on());
}

TEST_F(Foreign, ManyMessagesThatBringNothingAreClosedHere) {
  const size_t before = open_descriptors();
  for (int i = 0; i < 200; ++i) say(1);
  EXPECT_FALSE(ours.part());
  EXPECT_EQ(open_descriptors(), before - 1);
}

// A peer may leave thousands of messages where net.core.wmem_max is large.
TEST_F(Foreign, ManyMessagesCanBeRemovedInPieces) {
  const size_t before = open_descriptors();
  for (int i = 0; i < 200; ++i) say(1);
  EXPECT_FALSE(ours.clear_some(100));
  EXPECT_TRUE(is_hung_up_on()) << "nothing more can come";
  EXPECT_FALSE(ours.clear_some(100)) << "it does not know yet that these were the last";
  EXPECT_TRUE(ours.clear_some(100));
  EXPECT_FALSE(ours.part());
  EXPECT_EQ(open_descriptors(), before - 1);
}

TEST_F(Foreign, PiecesEndAtADescriptor) {
  const UniqueFd file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const int sent = file.get();
  say(1);
  say(1, {&sent, 1});
  EXPECT_TRUE(ours.clear_some(100));
  EXPECT_TRUE(ours.part());
}

TEST_F(Foreign, WhoHasHungUpIsHungUpOn) {
  const size_t before = open_descriptors();
  say(1);
  other.reset();
  ours.hang_up();
  EXPECT_EQ(open_descriptors(), before - 2);
}

// Abandoning a copy (as a child does after fork()) does not shut down the parent's socket.
TEST_F(Foreign, AbandonedItIsNotHungUp) {
  ForeignSocket copy(UniqueFd(::dup(ours.get())));
  copy.abandon();
  say(1);
  EXPECT_EQ(look()->bytes, 1u);
}

// Descriptors in messages that are still in the socket when it closes, after that many messages without a
// descriptor.
class ForeignLeft : public Foreign, public testing::WithParamInterface<size_t> {};

TEST_P(ForeignLeft, IsNotWaitedFor) {
  const size_t before = open_descriptors();
  LingeringSocket slow;
  for (size_t i = 0; i < GetParam(); ++i) say(i % 2);
  say(0, slow);
  const TimePoint began = MonotonicClock::now();
  ours.hang_up();
  EXPECT_TRUE(is_hung_up_on());
  EXPECT_LT(MonotonicClock::now() - began, LingeringSocket::kAtOnce);
  EXPECT_TRUE(becomes_true(is_discarding));
  slow.cut_short();
  EXPECT_TRUE(becomes_true([&] { return open_descriptors() == before - 1; }));
}

INSTANTIATE_TEST_SUITE_P(Behind, ForeignLeft, testing::Values(0, 1, 2, 5));

}  // namespace
}  // namespace verbena
