// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <limits>
#include <vector>

#include "commands/rdma_core/common/options.h"

namespace verbena::rdma_core {

// These functions parse command lines of programs that have only short options, with getopt(3). "--json" and
// "--help" are handled before getopt().

// Returns an option that sets `value` to a decimal number in this range. Reports other words as wrong usage.
Option decimal(char letter, int& value, int least, int most = std::numeric_limits<int>::max());

// Returns an option that passes a number from 0 to 255 to `take`, in base 8, 10 or 16.
Option octet(char letter, std::function<void(unsigned char value)> take);

// The result of parsing a command line. `next` is kStop for --help.
struct Letters {
  Next next = Next::kGoOn;
  bool json = false;
};

// Parses a command line. `quiet` suppresses getopt(3)'s own messages about unknown options.
Letters parse_letters(int argc, char** argv, const std::vector<Option>& options, bool quiet = false);

// Prints the usage text of `program`, which was called as `argv0`. If `next` is kStop (--help), also prints
// the options with their units, and examples. Returns the exit status.
int print_usage(const char* program, const char* argv0, Next next);

}  // namespace verbena::rdma_core
