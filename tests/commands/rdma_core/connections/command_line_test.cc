// SPDX-License-Identifier: Apache-2.0
#include "commands/rdma_core/connections/command_line.h"

#include <gtest/gtest.h>

namespace verbena::rdma_core {
namespace {

class LettersTest : public testing::Test {
 protected:
  Letters parse(std::vector<std::string> words) {
    words.insert(words.begin(), "program");
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    std::vector<Option> options = {decimal('c', count_, 0, 1000), flag('v', nullptr, verbose_),
                                   text('s', nullptr, address_),
                                   octet('t', [this](unsigned char value) { tos_ = value; })};
    return parse_letters(static_cast<int>(argv.size()), argv.data(), options, true);
  }

  int count_ = 7;
  bool verbose_ = false;
  std::string address_;
  int tos_ = -1;
};

TEST_F(LettersTest, MayBeBundledWithTheirValues) {
  EXPECT_EQ(parse({"-vc12", "-s", "10.0.0.1"}).next, Next::kGoOn);
  EXPECT_TRUE(verbose_);
  EXPECT_EQ(count_, 12);
  EXPECT_EQ(address_, "10.0.0.1");
}

TEST_F(LettersTest, KeepTheirDefaults) {
  EXPECT_EQ(parse({}).next, Next::kGoOn);
  EXPECT_EQ(count_, 7);
}

TEST_F(LettersTest, KnowTheWordForJsonAnywhereBeforeTheOperands) {
  EXPECT_FALSE(parse({"-v"}).json);
  EXPECT_TRUE(parse({"-v", "--json", "-c", "3"}).json);
  EXPECT_EQ(count_, 3);
  EXPECT_FALSE(parse({"--", "--json"}).json);
}

TEST_F(LettersTest, StopAtHelp) {
  EXPECT_EQ(parse({"-v", "--help"}).next, Next::kStop);
}

TEST_F(LettersTest, AreWrongWhereThereAreNoSuch) {
  EXPECT_EQ(parse({"-x"}).next, Next::kWrong);
  EXPECT_EQ(parse({"--wrong"}).next, Next::kWrong);
  EXPECT_EQ(parse({"-c"}).next, Next::kWrong);
}

TEST_F(LettersTest, TakeDecimalNumbersInTheirBounds) {
  EXPECT_EQ(parse({"-c", "010"}).next, Next::kGoOn);
  EXPECT_EQ(count_, 10);
  for (const char* word : {"", "many", "1x", "-1", "1001", "99999999999999999999", "0x10"}) {
    EXPECT_EQ(parse({"-c", word}).next, Next::kWrong) << word;
  }
  EXPECT_EQ(count_, 10);
}

TEST_F(LettersTest, TakeOctetsOfAnyBase) {
  EXPECT_EQ(parse({"-t", "0x20"}).next, Next::kGoOn);
  EXPECT_EQ(tos_, 32);
  EXPECT_EQ(parse({"-t", "256"}).next, Next::kWrong);
}

}  // namespace
}  // namespace verbena::rdma_core
