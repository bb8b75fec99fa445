// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "commands/rdma_core/common/options.h"

namespace verbena::rdma_core {

// Command lines of programs that know letters only, as getopt(3) reads and complains of them. Two words stand
// beside the letters: "--json" and "--help", which getopt() never sees.

// A decimal number, as those programs take them; one that is none, or lies outside, is wrong usage.
Option decimal(char letter, int& value, int least, int most = std::numeric_limits<int>::max());

// An option whose value is given to a function.
Option taken(char letter, std::function<void(const char* value)> take);

// An octet in any base, such as a type of service.
Option octet(char letter, std::function<void(unsigned char value)> take);

struct Letters {
  Next next = Next::kGoOn;
  bool json = false;
};

// Reads a command line. `quiet`: without getopt's own complaints.
Letters parse_letters(int argc, char** argv, const std::vector<Option>& options, bool quiet = false);

// What the line of each usage text says of the word that is ours.
inline constexpr const char* kJsonUsage = "\t[--json]\n";

}  // namespace verbena::rdma_core
