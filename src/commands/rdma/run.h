// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <istream>
#include <string>
#include <vector>

#include <tl/expected.hpp>

#include "commands/rdma/agent_system.h"

namespace verbena::commands::rdma {

// Reads the commands of a batch file, one by one. "#" begins a comment, and "\" at the end of a line
// continues the command on the next line. Words with blanks are in single or double quotation marks.
class BatchLine {
 public:
  // Reads the next command. Returns false at the end of the file.
  bool read(std::istream& lines);
  // Returns the command's words, or a message about a syntax error in the command.
  const tl::expected<std::vector<std::string>, std::string>& words() const { return words_; }
  // Returns the number of the command's last line in the file, from 1 on.
  int number() const { return number_; }

 private:
  tl::expected<std::vector<std::string>, std::string> words_;
  int number_ = 0;
};

// The result of a command: texts for standard output and standard error, and the exit status.
struct Answer {
  std::string out;
  std::string complaints;
  int status = 0;
};

// Prints the output so far and removes it from `answer`. Returns false if standard output is closed.
using Flush = std::function<bool(Answer& answer)>;

// Runs `rdma` with these words; the first is the program's name. Calls `flush`, if set, when more output may
// follow much later, as in `rdma monitor`. Returns the exit status and the output that was not flushed.
Answer run(const std::vector<std::string>& words, System& system, const Flush& flush = {});

}  // namespace verbena::commands::rdma
