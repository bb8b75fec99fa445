// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "commands/rdma/system.h"

namespace verbena::commands::rdma {

// The output of a command: standard output, standard error, exit status.
struct Answer {
  std::string out;
  std::string complaints;
  int status = 0;
};

// Prints a part of a long output and removes it from `answer`. False: the output is closed.
using Flush = std::function<bool(Answer& answer)>;

// Runs `rdma` with these words; the first is the program's name. Calls `flush`, if set, when more output may
// follow much later. Returns the output that was not flushed.
Answer run(const std::vector<std::string>& words, System& system, const Flush& flush = {});

}  // namespace verbena::commands::rdma
