// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "commands/perf/parameters.h"

namespace verbena::perf {

// Does what the command line of a test asks for: runs one test, runs a sweep, or, as a server, runs the tests
// that the client orders. Returns the exit status. Throws std::exception if a test cannot be done.
int run_program(const Parameters& parameters);

}  // namespace verbena::perf
