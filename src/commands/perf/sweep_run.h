// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "commands/perf/parameters.h"

namespace verbena::perf {

// Returns the settings of each test of a sweep: sizes vary fastest, then depths, then queue pairs. `mtu`: the
// bytes of the largest datagram. Throws std::invalid_argument if the settings of a test contradict each
// other, or if there are too many tests. REQUIRES: parameters.sweep
std::vector<Parameters> points_of(const Parameters& parameters, std::uint32_t mtu);

// Runs a sweep with a server that takes orders (commands/perf/orders.h), and prints its figures. Returns the
// exit status. Throws std::exception if a test cannot be done. REQUIRES: parameters.sweep
int run_sweep(const Parameters& parameters);

}  // namespace verbena::perf
