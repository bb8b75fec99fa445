// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include <sys/types.h>

#include "agent/log/log_output.h"

namespace verbena::agent {

// Where the agent of this network namespace logs when its starter's standard error cannot be kept: beside its
// state directory, so that it can be read after the agent's end. Empty: there is no such place.
std::string log_file_path();
// The file that log_file_path() becomes when it is full.
std::string old_log_file_path();

// Takes standard error from the program that has started the agent, where that is a pipe or a socket: its
// reader waits until the last writer has closed it (`verbena run X 2>&1 | tail`). From then on standard error
// is a file, of at most two times `max_bytes` with the one before, or /dev/null where there can be none. A
// terminal and a file are kept: nobody waits for their end.
//
// The thread that writes the log has it. It changes descriptor 2 of the process.
class LogFile {
 public:
  // Whether standard error is a pipe or a socket.
  static bool is_needed();

  LogFile(std::string path, std::string old_path, off_t max_bytes = off_t{1} << 20);

  // False: the line is lost, as a whole or in part.
  bool put(std::string_view line);

 private:
  void open();
  void look_at_size();

  const std::string path_;
  const std::string old_path_;
  const off_t max_bytes_;
  LogOutput output_;
};

}  // namespace verbena::agent
