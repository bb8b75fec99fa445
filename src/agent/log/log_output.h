// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace verbena::agent {

// Writes lines to standard error. For a thread that may block: put() blocks while a full pipe is not read or
// a terminal is stopped.
class LogOutput {
 public:
  // Writes a line. Returns false if the line is lost, at least in part.
  bool put(std::string_view line);

 private:
  bool is_torn_ = false;  // the last line was written in part
};

}  // namespace verbena::agent
