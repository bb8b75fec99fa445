// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "commands/perf/exchange.h"
#include "commands/perf/parameters.h"

namespace verbena::perf {

// Runs the tests that the client orders, until it is done. Versions have been exchanged. `own`: the settings
// that no order has, as the device. Returns the exit status. Throws std::exception if a test has failed.
int follow_orders(Channel& channel, const Parameters& own);

// Exchanges versions, and follows the client's orders. Refuses a client that gives none, as perftest's.
int serve_client(Channel& channel, const Parameters& own);

}  // namespace verbena::perf
