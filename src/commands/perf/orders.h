// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

#include "commands/perf/exchange.h"
#include "commands/perf/parameters.h"

// Orders: messages by which the client of a sweep or a suite tells the server the next test and its settings.
// They go over the TCP connection of perftest's exchange, before each test's own exchange. perftest's
// programs know no orders.
namespace verbena::perf {

// Write and read one JSON object: its length as four bytes in network byte order, and its text. Throw
// std::runtime_error if the object is over 1 MiB or the peer has gone. read_object() also does so if the peer
// has sent something else than an object.
void write_object(Channel& channel, const nlohmann::json& object);
nlohmann::json read_object(Channel& channel);

// Returns the order for a test: the settings on which both ends must agree.
nlohmann::json order_of(const Parameters& parameters);

// Returns the settings of the ordered test at this end. `own`: the settings that this end chooses alone, such
// as its device. Throws std::runtime_error if the order is malformed or needs too much memory, and
// std::invalid_argument if the order contradicts itself.
Parameters parameters_of(const nlohmann::json& order, const Parameters& own);

}  // namespace verbena::perf
