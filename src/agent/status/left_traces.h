// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "agent/status/kept_traces.h"
#include "base/time.h"

namespace verbena::agent {

// Passes notable traces (see KeptTraces) from one agent to the next. An agent ends soon after the last
// program, and then writes these traces to a file beside its state directory. The next agent of the same user
// in the network namespace reads the file. A killed agent leaves no file.

inline constexpr Duration kLongestLeft = std::chrono::hours(1);  // older traces are not passed on

// Returns the path of the file, or an empty string if the network namespace is unknown.
std::string left_traces_path();

// Writes up to 64 notable traces to a new file, or only removes the old file if no trace is notable. On an
// error of the file system, returns the error and leaves no file. REQUIRES: no other user can write to the
// file's directory
Result<void> leave_traces(const KeptTraces& kept, const std::string& path);
// Removes the file and adds its traces to `kept`. Skips traces that are older than kLongestLeft, or from
// another boot or network namespace.
void take_left_traces(KeptTraces& kept, const std::string& path, TimePoint now);

}  // namespace verbena::agent
