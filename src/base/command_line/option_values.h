// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <CLI/App.hpp>

namespace verbena::command_line {

// Checks for option values, for CLI::Option::transform(). Their messages say in plain words which values are
// allowed; CLI11's own checks name C++ types and ranges. They normalize the value so that CLI11 converts it
// without an error.

// A whole number, decimal or with 0x. `what` completes the message "'abc' is not {what}", for example "a
// process ID".
CLI::Validator whole_number(std::string what, uint64_t least, uint64_t most);
CLI::Validator process_id();
CLI::Validator qp_number();

// A decimal fraction.
CLI::Validator decimal_number(std::string what, double least, double most);

// One of these words; case is ignored.
CLI::Validator one_of(std::vector<std::string> words);

// The words as help texts show them: "process|qp|link".
std::string choice(const std::vector<std::string>& words);

}  // namespace verbena::command_line
