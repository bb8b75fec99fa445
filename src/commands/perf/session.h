// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "commands/perf/parameters.h"

namespace verbena::perf {

// Runs a test with a peer, which may be perftest's program of the same name, and prints its figures. Returns
// the exit status. Throws std::exception if the test cannot be done.
int run_session(Parameters parameters);

}  // namespace verbena::perf
