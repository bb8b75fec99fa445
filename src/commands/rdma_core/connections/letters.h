// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "commands/rdma_core/common/options.h"

namespace verbena::rdma_core {

// Parses command lines of programs that have only short options, with getopt(3). "--json" and "--help" are
// handled before getopt().

// A decimal number from `least` to `most`; other words are wrong usage, as in rdma-core's programs.
Option decimal(char letter, int& value, int least, int most = std::numeric_limits<int>::max());

// An option whose value is passed to a function.
Option taken(char letter, std::function<void(const char* value)> take);

// An octet in any base, such as a type of service.
Option octet(char letter, std::function<void(unsigned char value)> take);

struct Letters {
  Next next = Next::kGoOn;
  bool json = false;
};

// Parses a command line. `quiet` suppresses getopt's own messages.
Letters parse_letters(int argc, char** argv, const std::vector<Option>& options, bool quiet = false);

// The line for --json in each usage text.
inline constexpr const char* kJsonUsage = "\t[--json]\n";

}  // namespace verbena::rdma_core
