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

// Runs the `verbena` program with these arguments of main(). Returns the exit status.
int run_command_line(int argc, char** argv);

// The two parts of a command line: words that `verbena` interprets, and the words of the program that
// `verbena run` runs. `verbena` passes the latter on unchanged.
struct Words {
  std::vector<std::string> ours;     // without the leading "verbena"
  std::vector<std::string> program;  // the program's name and its arguments; empty for other commands
};
// Splits the words after "verbena". For `run`, `program` begins at the first word without '-', or after "--".
Words cut_words(const std::vector<std::string>& words);

// Runs `verbena NAME ARGUMENT...` like `verbena run`, where NAME is `rdma` or one of our versions of
// rdma-core's programs. On success the program replaces this process. Returns nullopt if there is no program
// NAME, or an exit status if NAME cannot be started.
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
