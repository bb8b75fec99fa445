// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "control/client/command_client.h"

namespace verbena::test {

// Connects to the running agent, for its traces. Returns nullptr, and fails the test, if there is none.
inline std::unique_ptr<control::TraceClient> trace_client() {
  auto connected = control::TraceClient::connect({.start_agent = false, .agent_program = {}});
  EXPECT_TRUE(connected);
  return connected ? std::move(*connected) : nullptr;
}

// Return all traces at once, with their files open. Fail the test if the agent refuses one.
inline std::vector<control::TraceSource> all_living(control::TraceClient& client) {
  std::vector<control::TraceSource> all;
  EXPECT_TRUE(client.living([&](control::TraceSource source) { all.push_back(std::move(source)); }));
  return all;
}
inline std::vector<control::TraceSource> all_ended(control::TraceClient& client) {
  std::vector<control::TraceSource> all;
  EXPECT_TRUE(client.ended([&](control::TraceSource source) { all.push_back(std::move(source)); }));
  return all;
}

}  // namespace verbena::test
