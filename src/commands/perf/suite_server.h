// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "commands/perf/parameters.h"

namespace verbena::perf {

// Serves one client after the other, each in a process of its own, until a signal ends this one. Throws
// std::runtime_error if the port cannot be used.
int serve_suites(const Parameters& own);

}  // namespace verbena::perf
