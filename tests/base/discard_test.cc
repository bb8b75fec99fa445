// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <utility>

#include <fcntl.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/foreign_pile.h"
#include "base/foreign_socket.h"
#include "base/lingering_socket.h"
#include "base/watched_pipe.h"

namespace verbena {
namespace {

constexpr uid_t kSomeUser = 1'000'000;

using std::chrono::milliseconds;
using test::becomes_true;
using test::is_discarding;
using test::LingeringSocket;
using test::open_descriptors;
using test::WatchedPipe;

TEST(Discard, Closes) {
  WatchedPipe one;
  discard(std::move(one.writing));
  EXPECT_TRUE(becomes_true([&] { return one.is_closed(); }));
}

// A copy of the descriptor may be in a child.
TEST(Discard, ShutsASocketDown) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
  UniqueFd ours(ends[0]);
  const UniqueFd theirs(ends[1]);
  const UniqueFd copy(::dup(ours.get()));
  discard_socket(std::move(ours));
  char byte;
  EXPECT_TRUE(becomes_true([&] { return ::recv(theirs.get(), &byte, 1, 0) == 0; }));
}

// Each removal wakes all watches of the other end (UserPauses).
TEST(Discard, RemovesAllMessagesOfASocket) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
  const UniqueFd theirs(ends[1]);
  for (int i = 0; i < 100; ++i) ASSERT_EQ(::send(theirs.get(), "x", 1, MSG_NOSIGNAL), 1);
  discard_socket(UniqueFd(ends[0]), kSomeUser);
  int left = -1;
  EXPECT_TRUE(becomes_true([&] { return ::ioctl(theirs.get(), SIOCOUTQ, &left) == 0 && left == 0; }));
}

TEST(Discard, CountsTheDescriptorsOfEachUser) {
  LingeringSocket slow;
  discard(slow.take());
  ASSERT_TRUE(becomes_true(is_discarding));
  WatchedPipe one;
  discard(std::move(one.writing), kSomeUser);
  EXPECT_EQ(discarding(kSomeUser), 1u);
  EXPECT_EQ(discarding(kSomeUser + 1), 0u);
  slow.cut_short();
  EXPECT_TRUE(becomes_true([&] { return one.is_closed(); }));
  EXPECT_EQ(discarding(kSomeUser), 0u);
}

TEST(UserPauses, AUserWhoseDescriptorsTakeLongWaitsTenTimesAsLong) {
  UserPauses pauses;
  const TimePoint now{std::chrono::hours(1)};
  pauses.note(kSomeUser, UserPauses::kNormal, now);
  EXPECT_LE(pauses.until(kSomeUser), now);
  pauses.note(kSomeUser, milliseconds(50), now);
  EXPECT_EQ(pauses.until(kSomeUser), now + milliseconds(500));
  EXPECT_LE(pauses.until(kSomeUser + 1), now);
}

TEST(UserPauses, TheLongestPausesAreRememberedOfManyUsers) {
  UserPauses pauses;
  const TimePoint now{std::chrono::hours(1)};
  for (uid_t user = 1; user <= 40; ++user) pauses.note(user, milliseconds(10 * user), now);
  for (uid_t user = 9; user <= 40; ++user) {
    EXPECT_EQ(pauses.until(user), now + milliseconds(100 * user)) << "user " << user;
  }
}

TEST(Discard, NothingIsNothingToDo) {
  discard(UniqueFd());
  discard_socket(UniqueFd());
}

TEST(Discard, NobodyWaitsForWhatTakesLong) {
  const size_t before = open_descriptors();
  LingeringSocket slow;
  WatchedPipe behind;
  const TimePoint began = MonotonicClock::now();
  discard(slow.take());
  EXPECT_TRUE(becomes_true(is_discarding));
  discard(std::move(behind.writing));
  EXPECT_LT(MonotonicClock::now() - began, LingeringSocket::kAtOnce);
  slow.cut_short();
  EXPECT_TRUE(becomes_true([&] { return behind.is_closed(); }));
  behind.reading.reset();
  EXPECT_TRUE(becomes_true([&] { return open_descriptors() == before; }));
}

TEST(Discard, WhatIsMoreThanItHoldsStaysOpen) {
  rlimit limit;
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  if (limit.rlim_max < 2 * kMaxDiscarded) GTEST_SKIP() << "needs more descriptors";
  const rlimit more{limit.rlim_max, limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &more), 0);
  const size_t before = open_descriptors();
  LingeringSocket slow;
  discard(slow.take());
  ASSERT_TRUE(becomes_true(is_discarding));
  WatchedPipe one;
  for (size_t i = 0; i < kMaxDiscarded; ++i) discard(UniqueFd(::dup(one.writing.get())));
  const int beyond = one.writing.get();
  discard(std::move(one.writing));
  slow.cut_short();
  // Still open: the reading end, and the descriptor beyond kMaxDiscarded.
  EXPECT_TRUE(becomes_true([&] { return open_descriptors() == before + 2; }));
  EXPECT_FALSE(one.is_closed());
  ::close(beyond);
  EXPECT_TRUE(one.is_closed());
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
}

// The thread that closes descriptors exists in the parent only; the child closes its own.
TEST(Discard, AChildClosesByItself) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer follows no child of a process with threads";
#endif
  LingeringSocket slow;
  discard(slow.take());
  ASSERT_TRUE(becomes_true(is_discarding));
  WatchedPipe one;
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);  // ends a child that hangs
    WatchedPipe own;
    discard(std::move(own.writing));
    ::_exit(becomes_true([&] { return own.is_closed(); }) ? 0 : 1);
  }
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  slow.cut_short();
  EXPECT_TRUE(becomes_true([] { return !is_discarding(); }));
}

// A program that closes all descriptors, as daemons do, while some wait because another one takes long.
class DiscardOfMany : public testing::Test {
 protected:
  DiscardOfMany() {
    discard(slow.take());
    EXPECT_TRUE(becomes_true(is_discarding));
  }
  ~DiscardOfMany() override {
    if (!is_over) let_go();
  }
  // Waits until all that waited is handled.
  void let_go() {
    is_over = true;
    slow.cut_short();
    test::await_discards();
  }
  // A file whose close() may ask its file system.
  static UniqueFd some_file() { return UniqueFd(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC)); }
  static bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }
  static UniqueFd replace(int fd) {
    const UniqueFd own(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    EXPECT_EQ(::dup2(own.get(), fd), fd);
    return UniqueFd(fd);
  }

  LingeringSocket slow;
  bool is_over = false;
};

TEST_F(DiscardOfMany, LeavesLowNumbersToTheProgram) {
  WatchedPipe one;
  const int number = one.writing.get();
  discard(std::move(one.writing));
  EXPECT_FALSE(is_open(number));
  EXPECT_FALSE(one.is_closed());
  let_go();
  EXPECT_TRUE(one.is_closed());
}

TEST_F(DiscardOfMany, LeavesFilesOfTheProgramOpen) {
  UniqueFd file = some_file();
  const int number = file.get();
  discard(std::move(file));
  const UniqueFd own = replace(number);
  let_go();
  EXPECT_TRUE(is_open(number));
}

TEST_F(DiscardOfMany, ClosesThoseThatAreStillThere) {
  UniqueFd file = some_file();
  const int number = file.get();
  discard(std::move(file));
  let_go();
  EXPECT_FALSE(is_open(number));
}

TEST_F(DiscardOfMany, InAChildLeavesThoseOfTheParentAlone) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer follows no child of a process with threads";
#endif
  UniqueFd file = some_file();
  const int number = file.get();
  discard(std::move(file));
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);  // ends a child that hangs
    const bool waits = discarding() > 0;
    test::await_discards();
    ::_exit(!waits && is_open(number) ? 0 : 1);
  }
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// The process may end while the thread still closes descriptors.
TEST(Discard, TheEndOfTheProcessDoesNotWait) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer follows no child of a process with threads";
#endif
  LingeringSocket slow;
  WatchedPipe only_the_childs;
  const TimePoint began = MonotonicClock::now();
  const pid_t child = ::fork();
  if (child == 0) {
    only_the_childs.writing.reset();
    if (!becomes_true([&] { return only_the_childs.is_closed(); })) ::_exit(2);
    discard(slow.take());
    std::exit(becomes_true(is_discarding) ? 0 : 1);
  }
  slow.reset();
  only_the_childs.writing.reset();
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_LT(MonotonicClock::now() - began, LingeringSocket::kAtOnce);
  slow.cut_short();
}

TEST(ForeignFdTest, IsDiscardedUnlessItIsKnown) {
  WatchedPipe one;
  { const ForeignFd foreign(std::move(one.writing)); }
  EXPECT_TRUE(becomes_true([&] { return one.is_closed(); }));
  WatchedPipe other;
  ForeignFd foreign(std::move(other.writing));
  foreign.take_known().reset();
  EXPECT_TRUE(other.is_closed());
}

}  // namespace
}  // namespace verbena
