// SPDX-License-Identifier: Apache-2.0
#include "commands/doctor/command_output.h"

#include <chrono>
#include <csignal>

#include <gtest/gtest.h>

namespace verbena::commands::doctor {
namespace {

constexpr Duration kEnough = std::chrono::minutes(1);
constexpr Duration kShort = std::chrono::milliseconds(20);

TEST(CommandOutput, HasBothStreamsAndTheExitStatus) {
  const auto output = run_command({"sh", "-c", "echo one; echo two >&2; exit 3"}, kEnough);
  ASSERT_TRUE(output);
  EXPECT_EQ(output->out, "one\n");
  EXPECT_EQ(output->errors, "two\n");
  EXPECT_EQ(output->status, 3);
  EXPECT_FALSE(output->timed_out);
}

TEST(CommandOutput, EndsACommandThatGoesOn) {
  const auto output = run_command({"sleep", "1000"}, kShort);
  ASSERT_TRUE(output);
  EXPECT_TRUE(output->timed_out);
  EXPECT_EQ(output->status, 128 + SIGKILL);
}

TEST(CommandOutput, EndsACommandThatGoesOnWithoutItsStreams) {
  const auto output = run_command({"sh", "-c", "exec sleep 1000 >&- 2>&-"}, kShort);
  ASSERT_TRUE(output);
  EXPECT_TRUE(output->timed_out);
  EXPECT_EQ(output->status, 128 + SIGKILL);
}

TEST(CommandOutput, OfACommandThatDoesNotExistIsNone) {
  EXPECT_FALSE(run_command({"verbena-no-such-command"}, kEnough));
}

}  // namespace
}  // namespace verbena::commands::doctor
