// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace verbena::command_line {

// Helpers for programs that parse their command line with CLI11. `program`: the root App, with its name set.

// Translates the words of `verbena help WORD...` for CLI11: the named command, then --help. Keeps the first
// word that names no command, so that CLI11 reports it.
std::vector<std::string> words_for_help(const CLI::App& program, const std::vector<std::string>& words);

struct UnknownCommand {
  std::string what;    // the error message
  std::string within;  // the command whose --help lists the valid commands: "verbena link"
};

// Finds the first word that stands in a command's place and names none. CLI11 reports it only after --help
// has been processed. Nothing if all such words are commands.
std::optional<UnknownCommand> unknown_command(const CLI::App& program, const std::vector<std::string>& words);

// Turns CLI11's error into a sentence that names the option, the value and the next step.
std::string what_is_wrong(const CLI::App& program, const CLI::ParseError& error);

// The full name of the subcommand that was parsed: "verbena link add".
std::string reached(const CLI::App& program);

}  // namespace verbena::command_line
