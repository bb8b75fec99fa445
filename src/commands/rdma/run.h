// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "commands/rdma/system.h"

namespace verbena::commands::rdma {

// What the command answers: standard output, standard error, exit status.
struct Answer {
  std::string out;
  std::string complaints;
  int status = 0;
};

// Where an answer goes that comes bit by bit. False: nobody takes it any more.
using Flush = std::function<bool(Answer& answer)>;

// `rdma` with these words; the first is the program's name. `flush` is called when something has been said
// and more may come much later; what it takes it takes out of the answer.
Answer run(const std::vector<std::string>& words, System& system, const Flush& flush = {});

}  // namespace verbena::commands::rdma
