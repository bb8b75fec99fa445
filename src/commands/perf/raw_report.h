// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/bytes.h"
#include "commands/perf/raw_frame.h"

// Print frames and flow rules in perftest's form.
namespace verbena::perf {

// Prints the headers of a frame that write_headers() has written.
void print_frame(ConstBytes frame, const FrameFields& fields);
// Prints the fields that a flow rule matches.
void print_flow(const FrameFields& fields);

}  // namespace verbena::perf
