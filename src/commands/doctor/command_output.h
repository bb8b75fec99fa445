// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/time.h"

namespace verbena::commands::doctor {

struct CommandOutput {
  int status = 0;          // exit status, or 128 + N after signal N
  bool timed_out = false;  // the command exceeded its time limit and was killed
  std::string out;
  std::string errors;
};

// Runs a command without a shell and with empty standard input. Kills the command if it has not ended after
// `patience`. `words` are the program and its arguments. Searches for a program without '/' in the absolute
// folders of PATH, then in /usr/sbin, /sbin, /usr/bin and /bin. Keeps the first 8 MiB of each output stream.
// `environment` holds NAME=VALUE entries to add or replace. Returns nullopt if there is no such program or
// the program cannot be started.
std::optional<CommandOutput> run_command(const std::vector<std::string>& words, Duration patience,
                                         const std::vector<std::string>& environment = {});

}  // namespace verbena::commands::doctor
