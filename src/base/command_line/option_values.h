// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <CLI/App.hpp>

namespace verbena::command_line {

// Checks on the values of options. Each says in plain words what the value has to be, where CLI11's own
// checks name C++ types and ranges. To be given to CLI::Option::transform(): they bring the value into a form
// that CLI11 converts without a complaint of its own.

// A whole number, decimal or with 0x. `what` goes into "'abc' is not {what}": "a process ID".
CLI::Validator whole_number(std::string what, uint64_t least, uint64_t most);
CLI::Validator process_id();
CLI::Validator qp_number();

// A decimal fraction.
CLI::Validator decimal_number(std::string what, double least, double most);

// One of these words, in any case of letters.
CLI::Validator one_of(std::vector<std::string> words);

// For the help: "process|qp|link".
std::string choice(const std::vector<std::string>& words);

}  // namespace verbena::command_line
