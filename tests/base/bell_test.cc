// SPDX-License-Identifier: Apache-2.0
#include "base/bell.h"

#include <cerrno>
#include <cstddef>
#include <cstring>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/socket_option.h"
#include "base/watched_thread.h"

namespace verbena {
namespace {

using test::WatchedThread;

UniqueFd copy_of(int fd) {
  return UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
}

class BellTest : public testing::Test {
 protected:
  // The bell as a process that received the ringing end has it.
  Bell other_end() { return *Bell::of_other(copy_of(bell.ringing_fd())); }

  Bell bell = *Bell::make();
};

TEST_F(BellTest, WakesWhoSleepsThere) {
  WatchedThread sleeper([&] { EXPECT_TRUE(bell.await()); });
  ASSERT_TRUE(sleeper.falls_asleep());
  EXPECT_TRUE(other_end().ring());
  sleeper.join();
}

TEST_F(BellTest, RungBeforeIsNotSleptAt) {
  EXPECT_TRUE(bell.ring());
  EXPECT_TRUE(bell.await());
  EXPECT_FALSE(bell.hear());
}

TEST_F(BellTest, SeveralRingsAreHeardAtOnce) {
  EXPECT_FALSE(bell.hear());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(bell.ring());
  EXPECT_TRUE(bell.hear());
  EXPECT_FALSE(bell.hear());
}

// ---- what the owner of a bell may do to a process that rings it

// Owner and ringer share one open file description, and with it the file status flags.
TEST_F(BellTest, RingingNeverWaitsThoughTheOwnerFillsItAndLetsItBlock) {
  const Bell ringer = other_end();
  const int small = 1;
  const int flags = ::fcntl(bell.ringing_fd(), F_GETFL);
  ASSERT_EQ(::fcntl(bell.ringing_fd(), F_SETFL, flags & ~O_NONBLOCK), 0);
  ASSERT_EQ(::setsockopt(bell.ringing_fd(), SOL_SOCKET, SO_SNDBUF, &small, sizeof small), 0);
  for (int i = 0; i < 10'000; ++i) EXPECT_TRUE(ringer.ring()) << "who finds it full knows that it has rung";
  EXPECT_TRUE(bell.hear());
}

TEST_F(BellTest, RingingASilencedOneSaysSo) {
  const Bell ringer = other_end();
  ASSERT_EQ(::shutdown(bell.ringing_fd(), SHUT_WR), 0);
  EXPECT_FALSE(ringer.ring());
}

TEST_F(BellTest, RingingOneWhoseEndsAreNoPairAnyMoreSaysSo) {
  const Bell ringer = other_end();
  const sockaddr nobody{.sa_family = AF_UNSPEC, .sa_data = {}};
  ASSERT_EQ(::connect(bell.ringing_fd(), &nobody, sizeof nobody), 0);
  EXPECT_FALSE(ringer.ring());
  EXPECT_FALSE(bell.hear());
}

TEST_F(BellTest, RingingOneThatIsGoneSaysSo) {
  const Bell ringer = other_end();
  bell.abandon();
  EXPECT_FALSE(ringer.ring());
  EXPECT_FALSE(bell.ring());
}

// Needs SO_PASSRIGHTS (Linux 6.16). Older kernels cannot refuse descriptors that come with a message.
TEST_F(BellTest, BringsNoDescriptors) {
  int on = 0;
  socklen_t bytes = sizeof on;
  constexpr int kPassRights = 83;
  if (::getsockopt(bell.fd(), SOL_SOCKET, kPassRights, &on, &bytes) != 0) {
    GTEST_SKIP() << "this kernel lets nobody refuse descriptors";
  }
  char ring = 0;
  iovec data{&ring, sizeof ring};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))]{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  const int file = bell.fd();
  std::memcpy(CMSG_DATA(header), &file, sizeof file);
  EXPECT_LT(::sendmsg(bell.ringing_fd(), &message, MSG_DONTWAIT), 0);
  EXPECT_FALSE(bell.hear());
}

// ---- sockets that are not accepted as bells

TEST(BellOfOther, IsNothingThatRingingCouldWaitFor) {
  EXPECT_FALSE(Bell::of_other(UniqueFd()));
  EXPECT_FALSE(Bell::of_other(UniqueFd(::eventfd(0, EFD_CLOEXEC))));
  EXPECT_FALSE(Bell::of_other(UniqueFd(::epoll_create1(EPOLL_CLOEXEC))));
  EXPECT_FALSE(Bell::of_other(UniqueFd(::memfd_create("bell", MFD_CLOEXEC))));
  int pipe_ends[2];
  ASSERT_EQ(::pipe2(pipe_ends, O_CLOEXEC), 0);
  const UniqueFd reading(pipe_ends[0]);
  EXPECT_FALSE(Bell::of_other(UniqueFd(pipe_ends[1])));
  EXPECT_FALSE(Bell::of_other(UniqueFd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0))));
  EXPECT_FALSE(Bell::of_other(UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0))));
  for (const int type : {SOCK_STREAM, SOCK_SEQPACKET}) {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends), 0);
    const UniqueFd other(ends[0]);
    EXPECT_FALSE(Bell::of_other(UniqueFd(ends[1])));
  }
}

// A socket without a name is refused. Its owner could bind it later, and send() to it could then block for as
// long as the owner likes.
TEST(BellOfOther, IsNothingWithoutAName) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd other(ends[0]);
  EXPECT_FALSE(Bell::of_other(UniqueFd(ends[1])));
}

// A name that the kernel picks has five digits. Others may have taken nearly all of those, so that the search
// for a free one takes seconds.
TEST_F(BellTest, HasANameThatNobodyCanTakeFirst) {
  sockaddr_un name{};
  socklen_t bytes = sizeof name;
  ASSERT_EQ(::getsockname(bell.ringing_fd(), reinterpret_cast<sockaddr*>(&name), &bytes), 0);
  constexpr size_t kRandomDigits = 32;
  EXPECT_GT(bytes, offsetof(sockaddr_un, sun_path) + 1 + kRandomDigits);
  EXPECT_FALSE(bind_to_random_name(bell.ringing_fd()));
  EXPECT_EQ(errno, EINVAL) << "it has a name already";
}

// The socket's abstract name is visible to every process of the network namespace.
TEST_F(BellTest, IsNotFoundByItsName) {
  sockaddr_un name;
  socklen_t bytes = sizeof name;
  ASSERT_EQ(::getsockname(bell.ringing_fd(), reinterpret_cast<sockaddr*>(&name), &bytes), 0);
  const UniqueFd stranger(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const char ring = 0;
  EXPECT_LT(
      ::sendto(stranger.get(), &ring, sizeof ring, MSG_DONTWAIT, reinterpret_cast<sockaddr*>(&name), bytes),
      0);
  EXPECT_FALSE(bell.hear());
}

}  // namespace
}  // namespace verbena
