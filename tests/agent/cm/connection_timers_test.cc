// SPDX-License-Identifier: Apache-2.0
// Timers of connections run in turns of their user. A user may have 131,072 that expire at one moment.
#include <gtest/gtest.h>

#include "agent/cm/in_process.h"

namespace verbena::agent {
namespace {

constexpr uid_t kUser = 1'000'000;
constexpr size_t kMany = 100;

using ConnectionTimers = CmInProcess;

// TIMEWAIT takes some microseconds, as these connections have the shortest ACK timeout.
TEST_F(ConnectionTimers, RunOneAtATimeInTurnsOfTheirUserAlsoForDestroyedConnections) {
  add_link();
  service_.take_over(-1);
  Program busy = program(kUser);
  for (size_t i = 0; i < kMany; ++i) {
    const uint32_t id = busy.restore_connection();
    ASSERT_NE(id, 0u);
    ASSERT_EQ(busy.destroy(id), 0);
  }
  cm::Manager& manager = service_.manager();
  EXPECT_EQ(manager.size(), kMany);
  while (manager.size() > 0) {
    const size_t before = manager.size();
    const bool has_turn = loop_.has_work_for(kUser);
    loop_.run_round();
    EXPECT_LE(before - manager.size(), has_turn ? 1u : 0u);
  }
}

}  // namespace
}  // namespace verbena::agent
