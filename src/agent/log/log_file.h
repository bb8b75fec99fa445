// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include <sys/types.h>

#include "agent/log/log_output.h"

namespace verbena::agent {

// Returns the path of the agent's log file, used if the agent must not keep its starter's standard error. The
// file is beside the state directory of this network namespace, so that it can be read after the agent's end.
// Empty if there is no safe place.
std::string log_file_path();
// Returns the path to which log_file_path() is renamed when it is full.
std::string old_log_file_path();

// Replaces the standard error that the agent has inherited, if it is a pipe or a socket: its reader waits
// until the last writer closes it (`verbena run X 2>&1 | tail`). From then on standard error is a file, or
// /dev/null if no file can be created. The file and the former one have at most two times `max_bytes`.
// Terminals and files are kept: no reader waits for their end.
//
// Used by the thread that writes the log. Changes descriptor 2 of the process.
class LogFile {
 public:
  // Whether standard error is a pipe or a socket.
  static bool is_needed();

  LogFile(std::string path, std::string old_path, off_t max_bytes = off_t{1} << 20);

  // Writes a line. False: the line is lost, at least in part.
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
