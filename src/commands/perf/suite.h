// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace verbena::perf {

// `verbena perf suite`: runs perftest's tests on this host, or between this host and a peer, and writes a
// page about their figures. Returns the exit status. `program`: the words before the arguments, for messages.
int run_suite(const std::string& program, int argc, char** argv);

}  // namespace verbena::perf
