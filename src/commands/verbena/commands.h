// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace verbena::commands {

// Exit statuses of `verbena`. `verbena run` exits with its program's own status once the program has started.
enum ExitStatus : int {
  kDone = 0,
  kFailed = 1,           // the request was understood but failed
  kUsage = 2,            // the command line is wrong
  kNotExecutable = 126,  // the program exists but does not start; as in shells
  kNotFound = 127,       // there is no such program; as in shells
};

// Runs `verbena` with these arguments. Returns the exit status.
int run_command_line(int argc, char** argv);

// The words of a command line in two parts: those that `verbena` interprets, and for `run` those of the
// program, which stay as they are.
struct Words {
  std::vector<std::string> ours;     // without the command's own name
  std::vector<std::string> program;  // from its name on
};
Words cut_words(const std::vector<std::string>& words);

// Runs `verbena NAME ARGUMENT...`, where NAME is `rdma` or one of our versions of rdma-core's programs, as
// `verbena run` would. Returns an exit status if that fails, and nullopt if there is no program NAME.
std::optional<int> run_own_program(const std::vector<std::string>& words);

// Each function adds its subcommand to the command line. A chosen subcommand does its work inside parse() and
// leaves an ExitStatus in `status`. REQUIRES: all arguments outlive parse().
void add_run(CLI::App& verbena, const std::vector<std::string>& program, int& status);
void add_link(CLI::App& verbena, int& status);
void add_status(CLI::App& verbena, int& status);
void add_capture(CLI::App& verbena, int& status);
void add_agent(CLI::App& verbena, int& status);
void add_doctor(CLI::App& verbena, int& status);
void add_explain(CLI::App& verbena, int& status);
void add_system(CLI::App& verbena, int& status);
void add_metrics(CLI::App& verbena, int& status);
void add_top(CLI::App& verbena, int& status);
void add_trace(CLI::App& verbena, int& status);

}  // namespace verbena::commands
