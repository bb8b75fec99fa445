// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <gtest/gtest.h>

#include "base/command_line/command_line.h"

namespace verbena::command_line {
namespace {

const std::vector<std::string> kCommands = {"run", "status", "system", "link", "top", "trace", "doctor"};

TEST(Suggestion, FindsWhatWasMistyped) {
  EXPECT_EQ(closest("staus", kCommands), "status");
  EXPECT_EQ(closest("stauts", kCommands), "status");
  EXPECT_EQ(closest("lnik", kCommands), "link");
  EXPECT_EQ(closest("rum", kCommands), "run");
  EXPECT_EQ(closest("statusss", kCommands), "status");
}

TEST(Suggestion, FindsWhatWasAbbreviated) {
  EXPECT_EQ(closest("doc", kCommands), "doctor");
  EXPECT_EQ(closest("s", kCommands), "") << "two begin with it";
}

TEST(Suggestion, FindsNothingThatIsFarAway) {
  EXPECT_EQ(closest("frobnicate", kCommands), "");
  EXPECT_EQ(closest("", kCommands), "");
  EXPECT_EQ(closest(std::string(10'000, 'a'), kCommands), "");
  EXPECT_EQ(closest("run", {}), "");
}

TEST(Suggestion, IsTheEndOfASentence) {
  EXPECT_EQ(did_you_mean("staus", kCommands), "; did you mean 'status'?");
  EXPECT_EQ(did_you_mean("frobnicate", kCommands), "");
}

}  // namespace
}  // namespace verbena::command_line
