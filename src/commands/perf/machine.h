// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "commands/perf/parameters.h"

namespace verbena::perf {

// Returns facts about this end that matter for its figures: host, kernel, processors, device, versions.
// Throws std::exception if the device of `parameters` cannot be used.
nlohmann::json describe_end(const Parameters& parameters);

// Returns how data goes between two ends. The arguments are their descriptions (describe_end()). The result
// is "shared memory", "wire", or, for one host without shared memory, "wire" with the reason.
std::string route_between(const nlohmann::json& own, const nlohmann::json& peer);

}  // namespace verbena::perf
