// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/time.h"

namespace verbena::commands::doctor {

struct CommandOutput {
  int status = 0;          // exit status; 128 + N after signal N
  bool timed_out = false;  // it exceeded its time and was killed
  std::string out;
  std::string errors;
};

// Runs a program without a shell and with empty standard input, for at most `patience`. Searches for it in
// PATH, then in the sbin and bin folders. Keeps some megabytes of its output. `environment` holds NAME=VALUE
// entries to add. Returns nullopt if there is no such program or it cannot be started.
std::optional<CommandOutput> run_command(const std::vector<std::string>& words, Duration patience,
                                         const std::vector<std::string>& environment = {});

}  // namespace verbena::commands::doctor
