// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <gtest/gtest.h>

#include "base/command_line/command_line.h"

namespace verbena::command_line {
namespace {

// A program with an option of each kind.
class UsageErrors : public ::testing::Test {
 protected:
  UsageErrors() {
    app_.option_defaults()->disable_flag_override();
    app_.add_flag("-f,--foreground", foreground_, "");
    app_.add_option("--timeout", seconds_, "")->transform(decimal_number("a number of seconds", 0, 10));
    app_.add_option("--count", count_, "")->transform(whole_number("a count from 1 to 5", 1, 5));
    app_.add_option("--secret", count_, "")->group("");
  }

  std::string complaint(std::vector<std::string> words) {
    std::ranges::reverse(words);  // CLI11 takes the words last to first
    try {
      app_.parse(std::move(words));
    } catch (const CLI::ParseError& error) {
      return what_is_wrong(app_, error);
    }
    return "";
  }

  CLI::App app_{"", "program"};
  bool foreground_ = false;
  double seconds_ = 0;
  unsigned count_ = 0;
};

TEST_F(UsageErrors, NamesAnUnknownOptionAndTheClosest) {
  EXPECT_EQ(complaint({"--timeuot=3"}), "unknown option '--timeuot=3'; did you mean '--timeout'?");
}

TEST_F(UsageErrors, SuggestsNoHiddenOption) {
  EXPECT_EQ(complaint({"--secrets"}), "unknown option '--secrets'");
}

TEST_F(UsageErrors, NamesAWordTooMany) {
  EXPECT_EQ(complaint({"extra"}), "unexpected argument 'extra'");
}

TEST_F(UsageErrors, NamesAMissingValue) {
  EXPECT_EQ(complaint({"--timeout"}), "--timeout needs a value");
}

TEST_F(UsageErrors, NamesAWrongValueAndTheRightOnes) {
  EXPECT_EQ(complaint({"--timeout", "soon"}), "--timeout: 'soon' is not a number of seconds");
  EXPECT_EQ(complaint({"--count", "6"}), "--count: '6' is not a count from 1 to 5");
}

TEST_F(UsageErrors, RejectsAValueOfAFlag) {
  EXPECT_EQ(complaint({"--foreground=7"}), "--foreground takes no value");
}

TEST_F(UsageErrors, SaysWhichCommandLacksTheWord) {
  CLI::App program("", "verbena");
  program.add_subcommand("link")->add_subcommand("show");
  const auto wrong = unknown_command(program, {"link", "shwo"});
  ASSERT_TRUE(wrong);
  EXPECT_EQ(wrong->what, "unknown command 'shwo' of 'verbena link'; did you mean 'show'?");
  EXPECT_EQ(wrong->within, "verbena link");
  EXPECT_FALSE(unknown_command(program, {"link", "show", "anything"}));
}

}  // namespace
}  // namespace verbena::command_line
