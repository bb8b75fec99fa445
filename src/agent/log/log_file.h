// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include <sys/types.h>

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

// Returns the path of the agent's log file, which LogFile uses in place of the inherited standard error. The
// file lies beside the state directory of this network namespace, and so outlives the agent. Returns an empty
// string if another user can write to the file's directory.
std::string log_file_path();
// Returns the path to which LogFile renames a full log file.
std::string old_log_file_path();

// Makes standard error (descriptor 2) a log file, or /dev/null if no file can be created. Needed if the agent
// has inherited a pipe or a socket, whose reader would wait for the agent's end (`verbena run X 2>&1 |
// tail`). Terminals and files have no such reader, so the agent keeps them. When the file is larger than
// `max_bytes`, put() renames it to `old_path`, in place of the previous old file.
//
// put() is called by the thread that writes the log.
class LogFile {
 public:
  // Returns whether standard error is a pipe or a socket.
  static bool is_needed();

  LogFile(std::string path, std::string old_path, off_t max_bytes = off_t{1} << 20);

  // Writes a line. Returns false if the line is lost, at least in part.
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
