// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "commands/perf/exchange.h"
#include "commands/perf/parameters.h"

namespace verbena::perf {

// Sends the client a description of this end, and then runs the tests that the client orders
// (commands/perf/orders.h), until the client says that it is done. `own`: the settings that no order has,
// such as the device. Returns the exit status. Throws std::exception if a test has failed, or an order cannot
// be followed. Ends the process if the client goes away or a test takes more than two hours. REQUIRES: the
// ends have exchanged their versions
int follow_orders(Channel& channel, const Parameters& own);

// Takes the client's next order, and answers it. Returns the settings of the test, or nullopt if the client
// is done. Ends the process if the client has gone, or if order and answer take more than a minute. Throws
// std::exception, and tells the client the reason, if the order cannot be followed.
std::optional<Parameters> next_order(Channel& channel, const Parameters& own);

// Exchanges versions, and then runs follow_orders(). Throws std::runtime_error if the client gives no orders,
// as perftest's clients do not.
int serve_client(Channel& channel, const Parameters& own);

}  // namespace verbena::perf
