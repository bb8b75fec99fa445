// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/App.hpp>

namespace verbena::command_line {

// Checks of option values, for CLI::Option::transform(). Their error messages say in plain words which values
// are allowed; the messages of CLI11's own checks name C++ types and ranges. A check may rewrite an accepted
// value. Whole numbers become decimal, because CLI11 would read 011 as octal. A word gets the case that the
// program expects.

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

// Returns the candidate closest to a mistyped word: the one with the fewest letters added, removed, changed
// or swapped. At most about a third of the word's letters may differ; in a short word, one letter may differ.
// If no candidate is that close, returns the only candidate that begins with the word. Returns an empty text
// if there is none, or if the word exceeds 40 letters.
std::string_view closest(std::string_view word, std::span<const std::string> candidates);

// Returns "; did you mean 'status'?" with the closest() candidate, to end an error message; else empty.
std::string did_you_mean(std::string_view word, std::span<const std::string> candidates);

// Helpers for programs that parse their command line with CLI11. `program`: the root App, with its name set.

// Translates `verbena help WORD...` for CLI11 into `verbena WORD... --help`. `words` begins with "help",
// which the result omits. Keeps the first word that names no command, so that CLI11 reports it, and drops the
// words after it. Also drops all words after a command that has no subcommands.
std::vector<std::string> words_for_help(const CLI::App& program, const std::vector<std::string>& words);

struct UnknownCommand {
  std::string what;    // the error message
  std::string within;  // the command whose --help lists the valid commands: "verbena link"
};

// Finds the first word that stands where a command must stand but names no command. Call it before CLI11
// parses, since CLI11 reports an unknown command only after it has processed --help. Words that begin with
// '-' are skipped. Returns nullopt if there is no such word.
std::optional<UnknownCommand> unknown_command(const CLI::App& program, const std::vector<std::string>& words);

// Turns CLI11's error into a sentence for the user, such as "unknown option '--jsn'; did you mean '--json'?".
// REQUIRES: `program` has parsed the command line and thrown `error`
std::string what_is_wrong(const CLI::App& program, const CLI::ParseError& error);

// Returns the full name of the subcommand that CLI11 has parsed: "verbena link add".
std::string reached(const CLI::App& program);

}  // namespace verbena::command_line
