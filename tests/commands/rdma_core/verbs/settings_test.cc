// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "commands/rdma_core/verbs/pingpong/pingpong.h"

namespace verbena::rdma_core {
namespace {

using testing::HasSubstr;

struct Read {
  std::optional<Settings> settings;
  std::string text;
  std::string complaint;
};

Read read(const PingpongProgram& program, std::vector<std::string> words) {
  words.insert(words.begin(), "program");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Read result;
  result.settings = read_settings(program, static_cast<int>(words.size()), argv.data());
  result.complaint = testing::internal::GetCapturedStderr();
  std::fflush(stdout);
  result.text = testing::internal::GetCapturedStdout();
  return result;
}

TEST(PingpongSettings, HaveTheDefaultsOfEachProgram) {
  const Settings rc = *read(kRcPingpong, {}).settings;
  EXPECT_TRUE(rc.serves());
  EXPECT_EQ(rc.tcp_port, 18515);
  EXPECT_EQ(rc.size, 4096U);
  EXPECT_EQ(rc.mtu, IBV_MTU_1024);
  EXPECT_EQ(rc.receives, 500U);
  EXPECT_EQ(rc.iterations, 1000U);
  EXPECT_EQ(rc.queue_pairs, 1U);
  EXPECT_LT(rc.gid_index, 0);
  EXPECT_EQ(read(kUdPingpong, {}).settings->size, 1024U);
  EXPECT_EQ(read(kSrqPingpong, {}).settings->queue_pairs, 16U);
  EXPECT_EQ(read(kXsrqPingpong, {}).settings->iterations, 5U);
}

TEST(PingpongSettings, TakeAllThatTheCommandLineSays) {
  const auto settings =
      read(kRcPingpong, {"-p", "4000", "-d", "rxe0", "-i2", "-s", "64", "-m",       "2048",   "-r",
                         "9",  "-n",   "7",  "-l",   "3",   "-g", "1",  "-eoOPtcN", "--json", "there"})
          .settings;
  ASSERT_TRUE(settings);
  EXPECT_EQ(settings->server, "there");
  EXPECT_EQ(settings->tcp_port, 4000);
  EXPECT_EQ(settings->device, "rxe0");
  EXPECT_EQ(settings->ib_port, 2);
  EXPECT_EQ(settings->size, 64U);
  EXPECT_EQ(settings->mtu, IBV_MTU_2048);
  EXPECT_EQ(settings->receives, 9U);
  EXPECT_EQ(settings->iterations, 7U);
  EXPECT_EQ(settings->service_level, 3);
  EXPECT_EQ(settings->gid_index, 1);
  EXPECT_TRUE(settings->events && settings->on_demand && settings->implicit && settings->prefetch &&
              settings->timestamps && settings->check && settings->new_send && settings->json);
}

TEST(PingpongSettings, TheLetterCIsWhatTheProgramSays) {
  EXPECT_TRUE(read(kSrqPingpong, {"-c"}).settings->check);
  EXPECT_EQ(read(kXsrqPingpong, {"-c", "3"}).settings->clients, 3U);
  EXPECT_FALSE(read(kXsrqPingpong, {"-c"}).settings);
}

TEST(PingpongSettings, OptionsOfOtherProgramsAreNone) {
  EXPECT_FALSE(read(kUcPingpong, {"-o"}).settings);
  EXPECT_FALSE(read(kUdPingpong, {"-m", "1024"}).settings);
  EXPECT_FALSE(read(kRcPingpong, {"-q", "2"}).settings);
}

TEST(PingpongSettings, WrongOnesShowTheUsage) {
  const std::vector<std::vector<std::string>> wrong = {{"-z"},         {"-p", "70000"}, {"-p", "-1"},
                                                       {"-i", "0"},    {"-m", "1000"},  {"-m", ""},
                                                       {"-n", "many"}, {"one", "two"}};
  for (const auto& words : wrong) {
    const Read result = read(kRcPingpong, words);
    EXPECT_FALSE(result.settings) << words[0];
    EXPECT_THAT(result.text, testing::StartsWith("Usage:\n  program            start a server"));
    EXPECT_THAT(result.text, HasSubstr("  -m, --mtu=<size>       path MTU (default 1024)\n"));
  }
}

TEST(PingpongSettings, ThatContradictEachOtherAreRefused) {
  EXPECT_THAT(read(kRcPingpong, {"-oj"}).complaint, HasSubstr("DM memory region can't be on demand"));
  EXPECT_THAT(read(kRcPingpong, {"-P"}).complaint, HasSubstr("prefetch is valid only with"));
  EXPECT_EQ(read(kSrqPingpong, {"-q", "20", "-r", "10"}).complaint,
            "rx_depth 10 is too small for 20 QPs -- must have at least one receive per QP.\n");
  EXPECT_EQ(read(kSrqPingpong, {"-q", "256"}).complaint, "num_qp 256 must be less than 255\n");
  EXPECT_TRUE(read(kSrqPingpong, {"-q", "255"}).settings);
}

}  // namespace
}  // namespace verbena::rdma_core
