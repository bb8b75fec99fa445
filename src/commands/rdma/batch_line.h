// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <istream>
#include <string>
#include <vector>

#include <tl/expected.hpp>

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

}  // namespace verbena::commands::rdma
