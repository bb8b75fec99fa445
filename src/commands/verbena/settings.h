// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace verbena::commands {

// An environment variable that does not work as intended, because its value or its name is wrong.
struct WrongSetting {
  std::string name;
  // True if Verbena ignores the value. False for a mistyped name, or a bad path in VERBENA_AGENT.
  bool is_ours;
  std::string what;  // the problem: "VERBENA_SHARDS=99 has no effect: it has to be a number from 1 to 8"
};

// Returns the wrong settings in the environment, except VERBENA_LOG, which the logger reports (base/log.h).
std::vector<WrongSetting> wrong_settings();

}  // namespace verbena::commands
