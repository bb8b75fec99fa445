// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace verbena::perf {

// Returns the page of a suite as HTML: charts, tables, where and how it was measured, its limits, and the
// figures as JSON. The page needs no other file and no JavaScript. `suite`: the object that `verbena perf
// suite --json` prints.
std::string suite_page(const nlohmann::ordered_json& suite);

}  // namespace verbena::perf
