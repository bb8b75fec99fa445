// SPDX-License-Identifier: Apache-2.0
#include "agent/slots/process.h"

#include <csignal>
#include <cstdint>
#include <functional>
#include <string_view>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

namespace verbena::agent {
namespace {

constexpr int kCannot = 77;

// Runs `body` in a child. Returns its exit status.
int in_child(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = -1;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// A pidfd of a child that has ended.
UniqueFd make_process() {
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  UniqueFd process = watch_process(child);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  return process;
}

bool move_clocks(std::string_view offsets) {
  if (::unshare(CLONE_NEWTIME) != 0) return false;
  const UniqueFd file(::open("/proc/self/timens_offsets", O_WRONLY | O_CLOEXEC));
  return file && ::write(file.get(), offsets.data(), offsets.size()) == static_cast<ssize_t>(offsets.size());
}

TEST(StartTime, IsUnknownOfNoProcess) {
  EXPECT_EQ(start_time_of(0), 0U);
  EXPECT_EQ(start_time_of(-1), 0U);
}

TEST(StartTime, TellsProcessesApartThatStartedAtDifferentTimes) {
  const uint64_t own = start_time_of(::getpid());
  EXPECT_GT(own, start_time_of(1));
  EXPECT_TRUE(is_same_start(own, own));
  EXPECT_TRUE(is_same_start(own, own + 1));
  EXPECT_FALSE(is_same_start(own, own + 2));
}

TEST(UniqueNumber, IsTheSameOfAllPidfdsOfAProcessAndOfNoOther) {
  const UniqueFd one = watch_process(::getpid()), other = watch_process(::getpid());
  const uint64_t number = unique_number_of(one.get());
  if (number == 0) GTEST_SKIP() << "before Linux 6.9";
  EXPECT_EQ(unique_number_of(other.get()), number);
  const UniqueFd first = make_process(), second = make_process();
  EXPECT_NE(unique_number_of(first.get()), number);
  EXPECT_NE(unique_number_of(first.get()), unique_number_of(second.get())) << "both have ended";
}

TEST(UniqueNumber, IsUnknownOfOtherFiles) {
  EXPECT_EQ(unique_number_of(-1), 0U);
  EXPECT_EQ(unique_number_of(STDERR_FILENO), 0U);
}

class StartTimeOffsets : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Of, StartTimeOffsets,
                         ::testing::Values("boottime 1000000 0\n", "boottime 5 123456789\n",
                                           "boottime 0 0\n"));

TEST_P(StartTimeOffsets, TheTimeIsTheSameForReadersOfOtherTimeNamespaces) {
  const pid_t asked_for = ::getpid();
  const uint64_t here = start_time_of(asked_for);
  const int status = in_child([&] {
    if (!move_clocks(GetParam())) return kCannot;
    return in_child([&] { return is_same_start(start_time_of(asked_for), here) ? 0 : 1; });
  });
  if (status == kCannot) GTEST_SKIP() << "no time namespaces here";
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace verbena::agent
