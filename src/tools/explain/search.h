// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "tools/explain/table.h"

namespace verbena::tools::explanations {

// What these words of a command line ask for: a name or its end ("RETRY_EXC_ERR"), a number of any kind or of
// the kind that is named before it, what ibv_wc_status_str() and its like write, or words that the text has.
// All for no words; none where nothing fits.
std::vector<const Entry*> search(const std::vector<std::string>& words);

}  // namespace verbena::tools::explanations
