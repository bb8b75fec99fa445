// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "commands/perf/parameters.h"

namespace verbena::perf {

// Serves one client after the other, each in a child process, until a signal ends this process. Never
// returns. Throws std::runtime_error if the port cannot be used.
int serve_suites(const Parameters& own);

}  // namespace verbena::perf
