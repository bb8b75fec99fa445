// SPDX-License-Identifier: Apache-2.0
#include "base/own_fd.h"

#include <functional>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

namespace verbena {
namespace {

// The kinds of descriptor that we keep open, one of each that the kernel distinguishes.
struct Kind {
  std::string name;
  std::function<int()> make;
};

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = {
      {"Udp", [] { return ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0); }},
      {"Unix", [] { return ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0); }},
      {"Eventfd", [] { return ::eventfd(0, EFD_CLOEXEC); }},
      {"Timerfd", [] { return ::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC); }},
      {"Epoll", [] { return ::epoll_create1(EPOLL_CLOEXEC); }},
      {"MemoryFile", [] { return ::memfd_create("test", MFD_CLOEXEC); }},
  };
  return all;
}

bool is_open(int fd) {
  return ::fcntl(fd, F_GETFD) >= 0;
}

class OwnFdOfEachKind : public ::testing::TestWithParam<Kind> {
 protected:
  // Acts as a program that closes all descriptors and then opens files of its own.
  static UniqueFd replace(int number, const Kind& by) {
    EXPECT_EQ(::close(number), 0);
    UniqueFd other(by.make());
    EXPECT_EQ(::dup2(other.get(), number), number);
    return UniqueFd(number);
  }
};

TEST_P(OwnFdOfEachKind, IsKnownAgain) {
  OwnFd own(UniqueFd(GetParam().make()));
  ASSERT_TRUE(own);
  EXPECT_TRUE(own.is_ours());
  OwnFd moved(std::move(own));
  EXPECT_FALSE(own);  // NOLINT(bugprone-use-after-move)
  EXPECT_TRUE(moved.is_ours());
}

TEST_P(OwnFdOfEachKind, LiesAboveWhatTheApplicationOpens) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const OwnFd own(UniqueFd(GetParam().make()));
  EXPECT_GE(own.get(), static_cast<int>(std::min<rlim_t>(limit.rlim_cur / 2, 1024)));
  EXPECT_NE(::fcntl(own.get(), F_GETFD) & FD_CLOEXEC, 0);
  const UniqueFd next(::eventfd(0, EFD_CLOEXEC));
  EXPECT_LT(next.get(), own.get());
}

TEST_P(OwnFdOfEachKind, KeepsTheNumberThatTheApplicationKnows) {
  UniqueFd fd(GetParam().make());
  const int number = fd.get();
  const OwnFd own = OwnFd::with_known_number(std::move(fd));
  EXPECT_EQ(own.get(), number);
  EXPECT_TRUE(own.is_ours());
}

TEST_P(OwnFdOfEachKind, IsNotOursWhenItWasClosed) {
  OwnFd own(UniqueFd(GetParam().make()));
  const int number = own.get();
  ASSERT_EQ(::close(number), 0);
  EXPECT_FALSE(own.is_ours());
  EXPECT_FALSE(own.settle());
  EXPECT_EQ(own.get(), -1);
}

TEST_P(OwnFdOfEachKind, IsNotClosedWhenTheNumberIsAnothers) {
  for (const Kind& other : kinds()) {
    SCOPED_TRACE(other.name);
    OwnFd own(UniqueFd(GetParam().make()));
    const int number = own.get();
    const UniqueFd theirs = replace(number, other);
    EXPECT_FALSE(own.is_ours());
    EXPECT_FALSE(own.take());
    EXPECT_FALSE(own);
    EXPECT_TRUE(is_open(number));
  }
}

TEST_P(OwnFdOfEachKind, IsClosedWhenItEnds) {
  int number;
  {
    const OwnFd own(UniqueFd(GetParam().make()));
    number = own.get();
    EXPECT_TRUE(is_open(number));
  }
  EXPECT_FALSE(is_open(number));
}

INSTANTIATE_TEST_SUITE_P(OwnFd, OwnFdOfEachKind, ::testing::ValuesIn(kinds()),
                         [](const auto& kind) { return kind.param.name; });

// RLIMIT_NOFILE leaves no number above the descriptor.
TEST(OwnFd, StaysWhereItIsWithoutRoomAbove) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  UniqueFd fd(::eventfd(0, EFD_CLOEXEC));
  const rlimit small{static_cast<rlim_t>(fd.get()) + 1, limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &small), 0);
  const int number = fd.get();
  std::vector<UniqueFd> all;
  while (const int more = ::dup(number)) {
    if (more < 0) break;
    all.emplace_back(more);
  }
  const OwnFd own(std::move(fd));
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(own.get(), number);
  EXPECT_TRUE(own.is_ours());
}

}  // namespace
}  // namespace verbena
