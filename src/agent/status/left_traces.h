// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "agent/status/kept_traces.h"
#include "base/time.h"

namespace verbena::agent {

// Traces of programs that did not end well outlive the agent, which ends soon after the last program: it
// leaves them in a file of its user's, beside its state directory, and the next agent of the network
// namespace takes them up. An agent that is killed leaves nothing.

inline constexpr Duration kLongestLeft = std::chrono::hours(1);  // older ones are of no use to anybody

// Where; empty when the network namespace cannot be told.
std::string left_traces_path();

// As many as there is room for. Errors: those of the file system. REQUIRES: nobody else can write to the
// file's directory
Result<void> leave_traces(const KeptTraces& kept, const std::string& path);
// Takes up those not older than that, since the machine was started, and removes the file.
void take_left_traces(KeptTraces& kept, const std::string& path, TimePoint now);

}  // namespace verbena::agent
