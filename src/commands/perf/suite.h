// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace verbena::perf {

// `verbena perf suite`: measures this host, or the way to a peer, with all tests, and writes a page about it.
// Returns the exit status. `program`: the words before the arguments, for messages.
int run_suite(const std::string& program, int argc, char** argv);

}  // namespace verbena::perf
