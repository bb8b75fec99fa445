// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "agent/status/kept_traces.h"
#include "base/time.h"

namespace verbena::agent {

// Passes traces of programs that ended with trouble to the next agent. An agent ends soon after the last
// program; it leaves the traces in a file of its user's beside its state directory. The next agent of the
// network namespace reads them. A killed agent leaves nothing.

inline constexpr Duration kLongestLeft = std::chrono::hours(1);  // older traces are of no use

// Returns the path of the file; empty if the network namespace is unknown.
std::string left_traces_path();

// Writes notable traces to the file, up to 64. Errors: those of the file system. REQUIRES: no other user can
// write to the file's directory
Result<void> leave_traces(const KeptTraces& kept, const std::string& path);
// Reads traces that are at most kLongestLeft old and from the current boot, and removes the file.
void take_left_traces(KeptTraces& kept, const std::string& path, TimePoint now);

}  // namespace verbena::agent
