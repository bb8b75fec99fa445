// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "commands/perf/exchange.h"
#include "commands/perf/parameters.h"

namespace verbena::perf {

// Runs the tests that the client orders, until it is done. Versions have been exchanged. `own`: the settings
// that no order has, as the device. Returns the exit status. Throws std::exception if a test has failed, or
// an order cannot be followed.
int follow_orders(Channel& channel, const Parameters& own);

// Takes the client's next order, and answers it. Returns the settings of the test, or nullopt if there is no
// further one. Ends the process if the client needs more than a minute to send the order and to take the
// answer. Throws std::exception, and tells the client the reason, if the order cannot be followed.
std::optional<Parameters> next_order(Channel& channel, const Parameters& own);

// Exchanges versions, and follows the client's orders. Refuses a client that gives none, as perftest's.
int serve_client(Channel& channel, const Parameters& own);

}  // namespace verbena::perf
