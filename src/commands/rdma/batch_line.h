// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <istream>
#include <string>
#include <vector>

#include <tl/expected.hpp>

namespace verbena::commands::rdma {

// The lines of a file with commands, one after the other: "#" begins a comment, "\" at the end goes on in the
// next line, words with blanks are quoted.
class BatchLine {
 public:
  // False: there is no further one.
  bool read(std::istream& lines);
  // What it says, or why it cannot be understood.
  const tl::expected<std::vector<std::string>, std::string>& words() const { return words_; }
  // Of the line in the file; of its last part if it goes over several.
  int number() const { return number_; }

 private:
  tl::expected<std::vector<std::string>, std::string> words_;
  int number_ = 0;
};

}  // namespace verbena::commands::rdma
