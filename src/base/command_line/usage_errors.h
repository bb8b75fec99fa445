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

// For programs whose command lines CLI11 reads. `program`: all of it, with its name.

// The words of `verbena help WORD...` as CLI11 takes them: the command that they name, and --help. The first
// word that names no command is kept, so that it is complained of.
std::vector<std::string> words_for_help(const CLI::App& program, const std::vector<std::string>& words);

struct UnknownCommand {
  std::string what;    // the complaint
  std::string within;  // whose --help lists the commands that there are: "verbena link"
};

// A complaint about the first word that stands where a command has to and is none; CLI11 finds it only after
// it has obeyed a --help. Nothing: each such word is a command.
std::optional<UnknownCommand> unknown_command(const CLI::App& program, const std::vector<std::string>& words);

// A sentence for an error of CLI11's, which names the option, the value and the next step.
std::string what_is_wrong(const CLI::App& program, const CLI::ParseError& error);

// The subcommand that was reached, by its whole name: "verbena link add".
std::string reached(const CLI::App& program);

}  // namespace verbena::command_line
