// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

#include "commands/perf/exchange.h"
#include "commands/perf/parameters.h"

// Orders: the client of a sweep or a suite tells the server each test that follows. They go over the TCP
// connection of perftest's exchange, before each test's own exchange. perftest's programs know no orders.
namespace verbena::perf {

// Writes and reads one JSON object: its length as four bytes in network byte order, and its text.
// read_object() throws std::runtime_error if the peer has sent something else, or an object over 1 MiB.
void write_object(Channel& channel, const nlohmann::json& object);
nlohmann::json read_object(Channel& channel);

// Returns the settings of a test on which both ends must agree.
nlohmann::json order_of(const Parameters& parameters);

// Returns the settings of the ordered test at this end. `own`: the settings that are this end's own affair,
// as its device. Throws std::runtime_error if the order is malformed, std::invalid_argument if it contradicts
// itself.
Parameters parameters_of(const nlohmann::json& order, const Parameters& own);

}  // namespace verbena::perf
