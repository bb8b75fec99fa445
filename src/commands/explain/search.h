// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "commands/explain/table.h"

namespace verbena::commands::explanations {

// Finds entries for the words of a command line. These may be a name or its end ("RETRY_EXC_ERR"), or a
// number with or without its kind before it. They may also be a text of ibv_wc_status_str() or similar
// functions, or words that occur in an entry. Returns all entries for no words.
std::vector<const Entry*> search(const std::vector<std::string>& words);

// Returns a name without its kind's common prefix: "RETRY_EXC_ERR".
std::string_view short_name(std::string_view name);

}  // namespace verbena::commands::explanations
