// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "agent/agent_process.h"
#include "agent/network_namespace.h"

namespace verbena::adapter::testing {

using test::eventually;

// Enters a network namespace of its own, with loopback up, and runs the build's agent there. There is one per
// test process, since the library's connection to its agent lasts as long as the process.
class Environment : public ::testing::Environment {
 public:
  void SetUp() override;
  void TearDown() override;

  static test::AgentProcess& agent();
  // Sends this signal to the agent and waits for its end. start_agent() starts another.
  static void kill_agent(int signal);
  static void start_agent();
};

// Runs `body` in a child process with its own network namespace and agent; `before` runs before the agent
// starts. For tests that stop the agent or remove the network. Failures in the child fail this test.
void isolated(
    const std::function<void()>& body, const std::function<void()>& before = [] {});

}  // namespace verbena::adapter::testing
