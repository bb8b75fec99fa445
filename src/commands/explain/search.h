// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "commands/explain/table.h"

namespace verbena::commands::explanations {

// What these words of a command line ask for: a name or its end ("RETRY_EXC_ERR"), a number of any kind or of
// the kind that is named before it, what ibv_wc_status_str() and its like write, or words that the text has.
// All for no words; none where nothing fits.
std::vector<const Entry*> search(const std::vector<std::string>& words);

// Without what all names of the kind begin with: "RETRY_EXC_ERR".
std::string_view short_name(std::string_view name);

}  // namespace verbena::commands::explanations
