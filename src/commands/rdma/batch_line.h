// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <istream>
#include <string>
#include <vector>

#include <tl/expected.hpp>

namespace verbena::commands::rdma {

// Reads the commands of a batch file, one by one. "#" begins a comment, "\" at the end of a line continues it
// in the next one, and words with blanks are in quotation marks.
class BatchLine {
 public:
  // Reads the next command. False at the end of the file.
  bool read(std::istream& lines);
  // The command's words, or a message about a syntax error.
  const tl::expected<std::vector<std::string>, std::string>& words() const { return words_; }
  // The line number in the file; of the last line if the command has several.
  int number() const { return number_; }

 private:
  tl::expected<std::vector<std::string>, std::string> words_;
  int number_ = 0;
};

}  // namespace verbena::commands::rdma
