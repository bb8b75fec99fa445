// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "commands/perf/parameters.h"

// The command line of a test. Letters and long names are those of perftest. Some options are Verbena's own.
namespace verbena::perf {

// Why a command line gives no parameters.
enum class NoTest : std::uint8_t { kHelp, kVersion, kWrong };

// The result of parse(), which parses the words after the test's name. If the command line asks for help or
// the version, or is wrong, `parameters` is empty and `reason` says why. parse() prints a complaint if it is
// wrong; the caller prints the help and the version. parse() throws std::invalid_argument if an option has a
// wrong value or options contradict each other. `program`: the command without its options, for complaints.
struct Parsed {
  std::optional<Parameters> parameters;
  NoTest reason = NoTest::kWrong;
};
Parsed parse(const Test& test, const std::string& program, int argc, char** argv);

// Prints the lines of the help about options.
void print_options();

}  // namespace verbena::perf
