// SPDX-License-Identifier: Apache-2.0
// The agent serves its clients whatever its standard error is, and whatever clients make it log.
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "agent/agent_process.h"
#include "agent/log/stalled_stderr.h"
#include "agent/network_namespace.h"
#include "agent/sessions/other_users.h"
#include "agent/sessions/raw_connection.h"
#include "base/unique_fd.h"
#include "control/client/command_client.h"
#include "control/protocol/messages.h"

namespace verbena {
namespace {

using control::Admin;
using test::AgentProcess;

class StalledLog : public test::NamespaceTest {
 protected:
  void SetUp() override {
    NamespaceTest::SetUp();
    ::setenv("VERBENA_LOG", "debug", 1);
  }
  void TearDown() override { ::unsetenv("VERBENA_LOG"); }

  static bool answers_status() {
    const auto admin = Admin::connect({.start_agent = false, .agent_program = {}});
    return admin && (*admin)->status();
  }
  // Starts an agent that logs to `log`. It must answer, accept clients and end.
  static void expect_to_be_served(int log) {
    std::unique_ptr<AgentProcess> agent;
    {
      const test::StandardError replaced(log);
      agent = std::make_unique<AgentProcess>();
    }
    bool is_served = true;
    for (int i = 0; i < 3 && is_served; ++i) is_served = answers_status();
    EXPECT_TRUE(is_served);
    EXPECT_EQ(agent->stop(is_served ? SIGTERM : SIGKILL), 0);
  }
};

TEST_F(StalledLog, InAPipeThatNobodyReadsHoldsUpNobody) {
  expect_to_be_served(test::full_pipe().end.get());
}

TEST_F(StalledLog, OnATerminalThatIsStoppedHoldsUpNobody) {
  expect_to_be_served(test::stopped_terminal().end.get());
}

TEST_F(StalledLog, OnAFullDiskHoldsUpNobody) {
  const UniqueFd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  expect_to_be_served(full.get());
}

// An agent that a program has started logs to a file instead of the pipe.
TEST_F(StalledLog, IsLeftForAFileByAnAgentInTheBackground) {
  const test::Stalled pipe = test::full_pipe();
  std::unique_ptr<AgentProcess> agent;
  {
    const test::StandardError replaced(pipe.end.get());
    agent = std::make_unique<AgentProcess>(std::vector<std::string>{"--idle-timeout=60"});
  }
  EXPECT_TRUE(answers_status());
}

// Each message has a version that the agent does not speak, which makes it log a warning.
TEST_F(StalledLog, IsNotFilledByOneClient) {
  constexpr int kMessages = 500, kMaxLines = 200;
  std::string name = testing::TempDir() + "stalled_log_test_XXXXXX";
  const UniqueFd file(::mkstemp(name.data()));
  std::unique_ptr<AgentProcess> agent;
  {
    const test::StandardError replaced(file.get());
    agent = std::make_unique<AgentProcess>();
  }
  test::RawConnection connection;
  protocol::MessageHeader header = protocol::request_header(protocol::MessageType::kHello, 1);
  header.version = 60'000;
  for (int i = 0; i < kMessages; ++i) {
    ASSERT_TRUE(connection.send(protocol::bytes_of(header)));
    ASSERT_EQ(connection.reply(), EPROTONOSUPPORT);
  }
  EXPECT_EQ(agent->stop(SIGTERM), 0);
  int lines = 0, reports = 0;
  std::ifstream log(name);
  for (std::string line; std::getline(log, line);) {
    lines += line.find("speaks version 60000") != std::string::npos ? 1 : 0;
    reports += line.find("lines were left out") != std::string::npos ? 1 : 0;
  }
  EXPECT_GT(lines, 0);
  EXPECT_LE(lines, kMaxLines);
  EXPECT_GT(reports, 0);
  ::unlink(name.c_str());
}

}  // namespace
}  // namespace verbena
