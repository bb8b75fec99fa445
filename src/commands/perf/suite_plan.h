// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "commands/perf/parameters.h"

namespace verbena::perf {

// A test of the suite with the sizes that it measures.
struct SuiteTest {
  const Test* test;
  verbena::transport transport;
  std::vector<std::uint64_t> sizes;
};

// Returns the tests of the suite in their order. `mtu`: the bytes of the largest datagram. `is_quick`: fewer
// sizes.
std::vector<SuiteTest> suite_plan(std::uint32_t mtu, bool is_quick);

// Returns the settings for one size of a test. `own`: settings that have the device and the server. The first
// eighth and the last eighth of `time` do not count.
Parameters suite_parameters(const SuiteTest& test, std::uint64_t size, const Parameters& own,
                            std::chrono::milliseconds time);

}  // namespace verbena::perf
