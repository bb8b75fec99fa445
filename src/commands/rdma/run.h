// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "commands/rdma/system.h"

namespace verbena::commands::rdma {

// The result of a command: texts for standard output and standard error, and the exit status.
struct Answer {
  std::string out;
  std::string complaints;
  int status = 0;
};

// Prints the output so far and removes it from `answer`. Returns false if standard output is closed.
using Flush = std::function<bool(Answer& answer)>;

// Runs `rdma` with these words; the first is the program's name. Calls `flush`, if set, when more output may
// follow much later, as in `rdma monitor`. Returns the exit status and the output that was not flushed.
Answer run(const std::vector<std::string>& words, System& system, const Flush& flush = {});

}  // namespace verbena::commands::rdma
