// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "commands/perf/parameters.h"
#include "commands/perf/session.h"

namespace verbena::perf {

// Runs one end of a test for raw Ethernet, and prints its tables. The ends exchange nothing but the frames of
// the test, so the server must be there before the client. Throws std::exception if the test cannot be done.
// REQUIRES: parameters.raw
Outcome run_raw_test(Parameters parameters);

}  // namespace verbena::perf
