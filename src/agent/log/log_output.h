// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace verbena::agent {

// Writes lines to standard error, each by one write(2). For a thread that may wait: it does as long as nobody
// reads a pipe, or a terminal is stopped.
class LogOutput {
 public:
  // False: the line is lost, as a whole or in part.
  bool put(std::string_view line);

 private:
  bool is_torn_ = false;  // the last line lacks its end
};

}  // namespace verbena::agent
