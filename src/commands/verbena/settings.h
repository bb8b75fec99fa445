// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace verbena::commands {

// An environment variable with a wrong value or a mistyped name, which therefore does not have the intended
// effect.
struct WrongSetting {
  std::string name;
  // Verbena reads it and ignores the value; false for a mistyped name, or a bad path in VERBENA_AGENT
  bool is_ours;
  std::string what;  // the problem: "VERBENA_SHARDS=99 has no effect: it has to be a number from 1 to 8"
};

// Returns the wrong settings in this process's environment. Does not check VERBENA_LOG: the logger reports a
// wrong value (base/log.h).
std::vector<WrongSetting> wrong_settings();

}  // namespace verbena::commands
