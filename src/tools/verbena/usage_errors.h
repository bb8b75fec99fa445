// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/verbena/commands.h"

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace verbena::tools {

// The words of `verbena help WORD...` as CLI11 takes them: the command that they name, and --help. The first
// word that names no command is kept, so that it is complained of.
std::vector<std::string> words_for_help(const CLI::App& verbena, const std::vector<std::string>& words);

// A complaint about the first word that stands where a command has to and is none; CLI11 finds it only after
// it has obeyed a --help. Nothing: each such word is a command.
std::optional<std::string> unknown_command(const CLI::App& verbena, const std::vector<std::string>& words);

// A sentence for an error of CLI11's, which names the option, the value and the next step.
std::string what_is_wrong(const CLI::App& verbena, const CLI::ParseError& error);

// The subcommand that was reached, by its whole name: "verbena link add".
std::string reached(const CLI::App& verbena);

}  // namespace verbena::tools
