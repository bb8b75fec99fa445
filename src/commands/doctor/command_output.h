// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/time.h"

namespace verbena::commands::doctor {

struct CommandOutput {
  int status = 0;          // its exit status; 128 and the signal's number where one ended it
  bool timed_out = false;  // it was ended
  std::string out;
  std::string errors;
};

// Runs a program to its end, without a shell and with nothing to read, and gives it `patience`. Looks for its
// name in PATH and where root's programs lie. What it writes is kept up to some megabytes. `environment`:
// NAME=VALUE, added to ours. Nothing: there is no such program, or it cannot be started.
std::optional<CommandOutput> run_command(const std::vector<std::string>& words, Duration patience,
                                         const std::vector<std::string>& environment = {});

}  // namespace verbena::commands::doctor
