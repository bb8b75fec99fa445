// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace verbena::commands {

// An environment variable with a value that Verbena does not know, and so ignores.
struct WrongSetting {
  std::string name;
  bool is_ours;      // false: another name, which looks like a mistyped one of ours
  std::string what;  // "VERBENA_SHARDS=99 has no effect: it has to be a number from 1 to 8"
};

// Reads this process's environment. VERBENA_LOG is not among them: the logger itself complains of it
// (base/log.h).
std::vector<WrongSetting> wrong_settings();

}  // namespace verbena::commands
