// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "agent/agent_process.h"
#include "agent/network_namespace.h"

namespace verbena::adapter::testing {

using test::eventually;

// Where the tests of this room live: a network namespace of their own, loopback up, and the build's agent in
// it. A process has one for its whole life, as the library's connection to its agent lives as long.
class Environment : public ::testing::Environment {
 public:
  void SetUp() override;
  void TearDown() override;

  static test::AgentProcess& agent();
  // Ends the agent with this signal and, if so wanted, starts another.
  static void kill_agent(int signal);
  static void start_agent();
};

// Runs `body` in a process of its own that has a namespace and an agent of its own, prepared by `before` the
// agent starts. For tests that take the agent or the network away. Its failures are this process's.
void isolated(
    const std::function<void()>& body, const std::function<void()>& before = [] {});

}  // namespace verbena::adapter::testing
