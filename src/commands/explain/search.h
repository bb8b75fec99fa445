// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "commands/explain/table.h"

namespace verbena::commands::explanations {

// Finds the entries that the words of a command line ask for, ignoring case. The words may be a name with or
// without its prefix ("IBV_WC_RETRY_EXC_ERR", "RETRY_EXC_ERR"), or a number, optionally after a word for its
// kind ("wc 12"). If they match no name or number, finds entries that contain the words, or whose text from
// ibv_wc_status_str() or a similar function does. Returns all entries if `words` is empty.
std::vector<const Entry*> search(const std::vector<std::string>& words);

// Returns a name without the common prefix of its kind: "RETRY_EXC_ERR" for "IBV_WC_RETRY_EXC_ERR".
std::string_view short_name(std::string_view name);

}  // namespace verbena::commands::explanations
