// SPDX-License-Identifier: Apache-2.0
// Small classes with one or two tests each: results, descriptors, bytes, random numbers, signals.
#include <array>
#include <cerrno>
#include <csignal>
#include <new>
#include <stdexcept>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/c_abi.h"
#include "base/detached_thread.h"
#include "base/device_clock.h"
#include "base/random.h"
#include "base/result.h"
#include "base/siphash.h"
#include "base/time.h"
#include "base/unique_fd.h"

namespace verbena {
namespace {

bool is_open(int fd) {
  return ::fcntl(fd, F_GETFD) != -1;
}

int open_one() {
  const int fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  EXPECT_GE(fd, 0);
  return fd;
}

TEST(Result, CarriesAValueOrAnErrno) {
  const Result<int> good = 7, bad = fail(ENOENT);
  ASSERT_TRUE(good);
  EXPECT_EQ(*good, 7);
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error(), Error{ENOENT});
  EXPECT_NE(bad.error(), Error{EINVAL});
}

TEST(UniqueFd, ClosesItsDescriptor) {
  const int fd = open_one();
  { const UniqueFd owner(fd); }
  EXPECT_FALSE(is_open(fd));
}

TEST(UniqueFd, HasNoneAfterItWasMovedFrom) {
  const int fd = open_one();
  UniqueFd first(fd);
  UniqueFd second(std::move(first));
  EXPECT_FALSE(first);  // NOLINT(bugprone-use-after-move): tests the state after the move
  EXPECT_EQ(second.get(), fd);
  UniqueFd third(open_one());
  const int replaced = third.get();
  third = std::move(second);
  EXPECT_EQ(third.get(), fd);
  EXPECT_FALSE(is_open(replaced));
  EXPECT_TRUE(is_open(fd));
}

TEST(UniqueFd, LeavesOpenWhatItReleases) {
  UniqueFd owner(open_one());
  const int fd = owner.release();
  EXPECT_FALSE(owner);
  EXPECT_TRUE(is_open(fd));
  owner.reset(fd);
  owner.reset();
  EXPECT_FALSE(is_open(fd));
}

TEST(Bytes, AreBigEndianAtAnyAlignment) {
  std::array<uint8_t, 12> bytes{};
  store_be<uint32_t>(&bytes[1], 0x01020304);
  EXPECT_EQ(bytes, (std::array<uint8_t, 12>{0, 1, 2, 3, 4}));
  EXPECT_EQ(load_be<uint32_t>(&bytes[1]), 0x01020304u);
  EXPECT_EQ(load_be<uint16_t>(&bytes[2]), 0x0203u);
  store_be<uint64_t>(&bytes[3], 0x0102030405060708);
  EXPECT_EQ(bytes[3], 1);
  EXPECT_EQ(bytes[10], 8);
  EXPECT_EQ(load_be<uint64_t>(&bytes[3]), 0x0102030405060708u);
}

TEST(Bytes, OfThreeTouchNoFourth) {
  std::array<uint8_t, 5> bytes{0xaa, 0xaa, 0xaa, 0xaa, 0xaa};
  store_be24(&bytes[1], 0xff010203);
  EXPECT_EQ(bytes, (std::array<uint8_t, 5>{0xaa, 1, 2, 3, 0xaa}));
  EXPECT_EQ(load_be24(&bytes[1]), 0x010203u);
}

TEST(MonotonicClock, DoesNotGoBack) {
  const TimePoint first = MonotonicClock::now();
  const TimePoint second = MonotonicClock::now();
  EXPECT_LE(first, second);
  EXPECT_LT(second, kNever);
  const uint64_t ticks = device_clock();
  EXPECT_LE(ticks, device_clock());
}

TEST(Random, RepeatsItselfFromItsSeed) {
  Random one(7), same(7), other(8);
  bool differs = false;
  for (int i = 0; i < 100; ++i) {
    const uint64_t drawn = one.next();
    EXPECT_EQ(drawn, same.next());
    differs |= drawn != other.next();
  }
  EXPECT_TRUE(differs);
}

TEST(Random, StaysBelowItsBoundAndReachesAllOfIt) {
  Random random(1);
  std::array<int, 5> seen{};
  for (int i = 0; i < 1000; ++i) {
    const uint64_t drawn = random.below(seen.size());
    ASSERT_LT(drawn, seen.size());
    ++seen[drawn];
  }
  for (const int count : seen) EXPECT_GT(count, 100);
  EXPECT_FALSE(random.one_in(0));
  EXPECT_TRUE(random.one_in(1));
}

TEST(SignalsBlocked, LeavesOnlyFaults) {
  const auto is_blocked = [](int signal) {
    sigset_t now;
    pthread_sigmask(SIG_SETMASK, nullptr, &now);
    return sigismember(&now, signal) == 1;
  };
  ASSERT_FALSE(is_blocked(SIGUSR1));
  {
    const SignalsBlocked blocked;
    EXPECT_TRUE(is_blocked(SIGUSR1));
    EXPECT_TRUE(is_blocked(SIGINT));
    EXPECT_FALSE(is_blocked(SIGSEGV));
  }
  EXPECT_FALSE(is_blocked(SIGUSR1));
}

TEST(CAbi, LetsNoExceptionOut) {
  EXPECT_EQ(without_exceptions([]() -> int { throw std::bad_alloc(); }), ENOMEM);
  EXPECT_EQ(without_exceptions([]() -> int { throw std::system_error(EMFILE, std::generic_category()); }),
            EMFILE);
  EXPECT_EQ(without_exceptions([]() -> int { throw std::runtime_error("no errno of its own"); }), EIO);
  EXPECT_EQ(without_exceptions([]() -> int { throw 7; }), EIO);
}

TEST(CAbi, AnswersInTheWaysOfItsFunctions) {
  errno = 0;
  EXPECT_EQ(answer_code([] { return EAGAIN; }), EAGAIN);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_EQ(answer_minus_one([] { return EINVAL; }), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(answer_minus_one([] { return 0; }), 0);
  int target = 0;
  EXPECT_EQ(answer_pointer([&]() -> Result<int*> { return &target; }), &target);
  EXPECT_EQ(answer_pointer([]() -> Result<int*> { return fail(ENODEV); }), nullptr);
  EXPECT_EQ(errno, ENODEV);
}

// The ninth of the test vectors that SipHash's authors publish.
TEST(SipHash, IsTheOneOfItsAuthors) {
  EXPECT_EQ(siphash({0x0706050403020100, 0x0f0e0d0c0b0a0908}, 0x0706050403020100), 0x93f5f5799a932462);
}

}  // namespace
}  // namespace verbena
