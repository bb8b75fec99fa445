// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <CLI/App.hpp>

namespace verbena::command_line {

// Checks of option values, for CLI::Option::transform(). Their error messages say in plain words which values
// are allowed; the messages of CLI11's own checks name C++ types and ranges. An accepted value is rewritten
// if CLI11 could not convert it as typed: 0x11 to 17, a word to the case that the program expects.

// Accepts a whole number from `least` to `most`, decimal or with 0x. `what` completes the message "'abc' is
// not {what}", for example "a process ID".
CLI::Validator whole_number(std::string what, uint64_t least, uint64_t most);
CLI::Validator process_id();
CLI::Validator qp_number();

// Accepts a number from `least` to `most` such as 2 or 0.5, without sign and exponent. `what` as in
// whole_number().
CLI::Validator decimal_number(std::string what, double least, double most);

// Accepts one of these words and ignores case. An error message suggests a similar word.
CLI::Validator one_of(std::vector<std::string> words);

// Joins the words as help texts show them: "process|qp|link".
std::string choice(const std::vector<std::string>& words);

}  // namespace verbena::command_line
