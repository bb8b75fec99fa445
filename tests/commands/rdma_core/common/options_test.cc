// SPDX-License-Identifier: Apache-2.0
#include "commands/rdma_core/common/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace verbena::rdma_core {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A command line, and the values that its options were parsed to.
class Reading {
 public:
  explicit Reading(std::vector<std::string> words) : words_(std::move(words)) {
    words_.insert(words_.begin(), "program");
    std::vector<char*> argv;
    for (std::string& word : words_) argv.push_back(word.data());
    const int argc = static_cast<int>(argv.size());
    argv.push_back(nullptr);
    testing::internal::CaptureStderr();
    parsed = parse(argc, argv.data(),
                   {number('n', "iters", count),
                    number('i', "ib-port", port, 1),
                    text('d', "ib-dev", device),
                    flag('e', "events", events),
                    flag(0, "json", json),
                    {'l', "list", false, [](const char*) { return Next::kStop; }}});
    complaint = testing::internal::GetCapturedStderr();
  }

  unsigned count = 1000;
  uint8_t port = 7;
  std::string device;
  bool events = false;
  bool json = false;
  Parsed parsed;
  std::string complaint;

 private:
  std::vector<std::string> words_;
};

TEST(Options, HaveTheirDefaultsWhereNothingIsSaid) {
  const Reading read({});
  EXPECT_EQ(read.parsed.next, Next::kGoOn);
  EXPECT_EQ(read.count, 1000U);
  EXPECT_EQ(read.port, 7);
  EXPECT_FALSE(read.events || read.json);
}

TEST(Options, AreReadInEveryFormOfGetopt) {
  const Reading read({"-en5", "--ib-dev=rxe0", "host", "--ib-p", "0x10", "--json"});
  EXPECT_EQ(read.parsed.next, Next::kGoOn);
  EXPECT_THAT(read.parsed.operands, ElementsAre("host"));
  EXPECT_EQ(read.count, 5U);
  EXPECT_EQ(read.port, 16);
  EXPECT_EQ(read.device, "rxe0");
  EXPECT_TRUE(read.events && read.json);
}

TEST(Options, BehindTwoDashesAreOperands) {
  const Reading read({"--", "-e"});
  EXPECT_FALSE(read.events);
  EXPECT_THAT(read.parsed.operands, ElementsAre("-e"));
}

TEST(Options, ThatAreUnknownAreComplainedOfByGetopt) {
  EXPECT_EQ(Reading({"-z"}).parsed.next, Next::kWrong);
  EXPECT_THAT(Reading({"-z"}).complaint, HasSubstr("invalid option -- 'z'"));
  EXPECT_THAT(Reading({"--ib"}).complaint, HasSubstr("ambiguous"));
  EXPECT_THAT(Reading({"-n"}).complaint, HasSubstr("requires an argument"));
}

TEST(Options, WithoutALetterHaveNone) {
  EXPECT_EQ(Reading({"-j"}).parsed.next, Next::kWrong);
}

TEST(Options, ThatStopLeaveTheRestUnread) {
  const Reading read({"-l", "-z"});
  EXPECT_EQ(read.parsed.next, Next::kStop);
  EXPECT_EQ(read.complaint, "");
}

TEST(Numbers, AreWholeWordsBetweenTheirBounds) {
  for (const char* word : {"", "x", "5x", "-1", "4294967296", "99999999999999999999"}) {
    const Reading read({std::string("--iters=") + word});
    EXPECT_EQ(read.parsed.next, Next::kWrong) << word;
    EXPECT_THAT(read.complaint, HasSubstr(std::string("'") + word + "'"));
    EXPECT_EQ(read.count, 1000U);
  }
  EXPECT_EQ(Reading({"-i", "0"}).parsed.next, Next::kWrong);
  EXPECT_EQ(Reading({"-i", "256"}).parsed.next, Next::kWrong);
  EXPECT_EQ(Reading({"-n", "4294967295"}).count, 4294967295U);
}

TEST(Json, IsFoundBehindAnOptionThatStops) {
  char program[] = "program";
  char list[] = "-l";
  char json[] = "--json";
  char* with[] = {program, list, json};
  EXPECT_TRUE(asks_for_json(3, with));
  EXPECT_FALSE(asks_for_json(2, with));
}

}  // namespace
}  // namespace verbena::rdma_core
