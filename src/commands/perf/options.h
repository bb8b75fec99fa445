// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "commands/perf/parameters.h"

// The command line of a test. Letters and long names are perftest's; more are ours alone.
namespace verbena::perf {

// Why a command line gives no parameters.
enum class NoTest : std::uint8_t { kHelp, kVersion, kWrong };

// Parses the words after the test's name. Help, the version or a complaint has been printed if there are no
// parameters. Throws std::invalid_argument if options contradict each other. `program`: the words before
// them, as the help shows them.
struct Parsed {
  std::optional<Parameters> parameters;
  NoTest reason = NoTest::kWrong;
};
Parsed parse(const Test& test, const std::string& program, int argc, char** argv);

// Prints the lines of the help about options.
void print_options();

}  // namespace verbena::perf
