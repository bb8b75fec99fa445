// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/unique_fd.h"

namespace verbena::commands {

// Answers all who ask at this socket with the metrics of the agent. Does not return, starts no agent.
[[noreturn]] void serve_metrics(UniqueFd listener);

}  // namespace verbena::commands
