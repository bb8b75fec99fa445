// SPDX-License-Identifier: Apache-2.0
#include "agent/log/agent_log.h"

#include <algorithm>
#include <future>
#include <mutex>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include "agent/event_loop.h"
#include "agent/log/stalled_stderr.h"
#include "base/unique_fd.h"

namespace verbena::agent {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr Duration kLong = seconds(60);
constexpr LogLimit::Sizes kNoLimit{.of_user = 1'000'000, .of_all = 1'000'000};

AgentLog::Put standard_error() {
  return [output = LogOutput()](std::string_view line) mutable { return output.put(line); };
}

// A destination for lines that blocks until it is opened.
class Gate {
 public:
  AgentLog::Put put() {
    return [state = state_](std::string_view line) {
      state->opened.wait();
      const std::lock_guard lock(state->mutex);
      if (state->fails) return false;
      state->lines.emplace_back(line);
      return true;
    };
  }
  void open() { state_->open.set_value(); }
  void fail(bool fails) {
    const std::lock_guard lock(state_->mutex);
    state_->fails = fails;
  }
  std::vector<std::string> lines() const {
    const std::lock_guard lock(state_->mutex);
    return state_->lines;
  }

 private:
  struct State {
    std::promise<void> open;
    std::shared_future<void> opened = open.get_future().share();
    std::mutex mutex;
    bool fails = false;
    std::vector<std::string> lines;
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

class AgentLogTest : public testing::Test {
 protected:
  void SetUp() override { set_log_level(LogLevel::kInfo); }
  void TearDown() override { set_log_level(before_); }

  const LogLevel before_ = log_level();
};

TEST_F(AgentLogTest, WritesAllThatIsLogged) {
  Gate gate;
  gate.open();
  AgentLog log(gate.put());
  log_info("one");
  log_debug("is not wanted");
  log_warning("two");
  EXPECT_TRUE(log.flush(kLong));
  EXPECT_THAT(gate.lines(), ElementsAre(HasSubstr("info: one\n"), HasSubstr("warning: two\n")));
}

TEST_F(AgentLogTest, AWriterThatHangsHoldsUpNobodyAndTheLinesThatDoNotFitAreCounted) {
  Gate gate;
  AgentLog log(gate.put(), 4096, kNoLimit);
  for (int i = 0; i < 1000; ++i) log_info("line {}", i);
  EXPECT_THAT(gate.lines(), IsEmpty());
  gate.open();
  ASSERT_TRUE(log.flush(kLong));
  const auto lines = gate.lines();
  ASSERT_GT(lines.size(), 2u);
  // The writer may take lines twice. Both times a line says how many did not fit.
  size_t written = 0, missing = 0;
  for (const std::string& line : lines) {
    const bool counts = line.find(" lines are missing here") != std::string::npos;
    counts ? missing += std::stoul(line.substr(line.find("warning: ") + 9)) : ++written;
  }
  EXPECT_EQ(written + missing, 1000u);
  EXPECT_THAT(lines.back(), HasSubstr(" lines are missing here"));
  log_info("after");
  ASSERT_TRUE(log.flush(kLong));
  EXPECT_THAT(gate.lines().back(), HasSubstr("after"));
}

TEST_F(AgentLogTest, WhatCouldNotBeWrittenIsCountedWhenItCanBeAgain) {
  Gate gate;
  gate.open();
  gate.fail(true);
  AgentLog log(gate.put());
  for (int i = 0; i < 3; ++i) {
    log_info("lost");
    ASSERT_TRUE(log.flush(kLong));
  }
  gate.fail(false);
  log_info("written");
  ASSERT_TRUE(log.flush(kLong));
  EXPECT_THAT(gate.lines(), ElementsAre(HasSubstr("3 lines are missing here"), HasSubstr("written")));
}

TEST_F(AgentLogTest, GoesOnInAnotherPlaceWhileTheFormerHangs) {
  Gate first, second;
  second.open();
  AgentLog log(first.put());
  log_info("for the first");
  EXPECT_FALSE(log.flush(Duration(0)));
  log.write_by(second.put());
  log_info("for the second");
  EXPECT_TRUE(log.flush(kLong));
  EXPECT_THAT(second.lines().back(), HasSubstr("for the second"));
  first.open();
}

TEST_F(AgentLogTest, EndsWhileItsWriterHangs) {
  Gate gate;
  {
    AgentLog log(gate.put());
    log_info("lost");
  }
  gate.open();
}

TEST_F(AgentLogTest, LimitsTheLinesOfAUserAndSaysSoAtTheLatestAtItsEnd) {
  Gate gate;
  gate.open();
  {
    AgentLog log(gate.put(), 4096, {.of_user = 2, .window = kLong});
    for (int i = 0; i < 10; ++i) {
      const ActingFor user(1000);
      log_info("of user 1000");
    }
    const ActingFor user(1001);
    log_info("of user 1001");
  }
  const auto lines = gate.lines();
  EXPECT_EQ(std::ranges::count_if(lines, [](const auto& line) { return line.ends_with("of user 1000\n"); }),
            2);
  EXPECT_THAT(lines, testing::Contains(HasSubstr("of user 1001")));
  EXPECT_THAT(lines.back(), HasSubstr("user 1000: 8 lines were left out"));
}

TEST_F(AgentLogTest, ReportsOfItselfWhenTheWindowIsOver) {
  std::promise<void> reported;
  const AgentLog log(
      [&](std::string_view line) {
        if (line.find("lines were left out") != std::string_view::npos) reported.set_value();
        return true;
      },
      4096, {.of_user = 1, .window = std::chrono::milliseconds(50)});
  {
    const ActingFor user(1000);
    for (int i = 0; i < 3; ++i) log_info("flood");
  }
  EXPECT_EQ(reported.get_future().wait_for(kLong), std::future_status::ready);
}

TEST(ActingForTest, IsUndoneInItsOrder) {
  EXPECT_EQ(ActingFor::user(), std::nullopt);
  const ActingFor outer(1);
  {
    const ActingFor inner(2);
    EXPECT_EQ(ActingFor::user(), 2u);
  }
  EXPECT_EQ(ActingFor::user(), 1u);
}

std::string read_some(int fd) {
  pollfd entry{fd, POLLIN, 0};
  ::poll(&entry, 1, 10'000);
  char text[65536];
  const ssize_t bytes = ::read(fd, text, sizeof text);
  return {text, bytes > 0 ? static_cast<size_t>(bytes) : 0};
}

// Reads until this text has come. Returns everything read.
std::string read_until(int fd, const std::string& last) {
  std::string all;
  for (std::string some = read_some(fd); !some.empty(); some = read_some(fd)) {
    all += some;
    if (all.find(last) != std::string::npos) break;
  }
  return all;
}

class StalledOutput : public AgentLogTest {
 protected:
  // The log does not wait for a reader. A reader that resumes learns how many lines are missing.
  template <class Resume>
  static void expect_no_waiting(test::Stalled stalled, Resume resume) {
    const test::StandardError replaced(stalled.end.get());
    AgentLog log(standard_error(), 16384, kNoLimit);
    for (int i = 0; i < 2000; ++i) log_info("line {}", i);
    resume(stalled);
    const std::string got = read_until(stalled.other.get(), "lines are missing here");
    EXPECT_NE(got.find("line 0"), std::string::npos);
    EXPECT_NE(got.find("lines are missing here"), std::string::npos);
  }
};

TEST_F(StalledOutput, APipeThatNobodyReads) {
  expect_no_waiting(test::full_pipe(), [](const test::Stalled&) {});
}

TEST_F(StalledOutput, ATerminalThatIsStopped) {
  expect_no_waiting(test::stopped_terminal(),
                    [](const test::Stalled& stalled) { ::tcflow(stalled.end.get(), TCOON); });
}

TEST_F(StalledOutput, ADiskThatIsFull) {
  const UniqueFd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd reader(ends[0]), writer(ends[1]);
  const test::StandardError replaced(full.get());
  AgentLog log(standard_error());
  log_info("lost");
  ASSERT_TRUE(log.flush(kLong));
  test::StandardError::replace(writer.get());
  log_info("written");
  const std::string got = read_until(reader.get(), "info: written");
  EXPECT_THAT(got, HasSubstr("1 lines are missing here"));
  EXPECT_THAT(got, testing::EndsWith("info: written\n"));
}

}  // namespace
}  // namespace verbena::agent
