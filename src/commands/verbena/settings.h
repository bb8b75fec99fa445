// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace verbena::commands {

// An environment variable that has no effect, because its value or its name is wrong.
struct WrongSetting {
  std::string name;
  bool is_ours;      // true: its value is ignored; false: a mistyped name, or a bad path in VERBENA_AGENT
  std::string what;  // "VERBENA_SHARDS=99 has no effect: it has to be a number from 1 to 8"
};

// Checks the variables of this process. VERBENA_LOG is left out: the logger reports a wrong value
// (base/log.h).
std::vector<WrongSetting> wrong_settings();

}  // namespace verbena::commands
