// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdio>
#include <string>

#include <sys/wait.h>

namespace verbena {

struct CommandResult {
  int exit_code = -1;
  std::string output;  // standard output and standard error
};

inline CommandResult run_command(const std::string& command) {
  CommandResult result;
  FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return result;
  std::array<char, 4096> chunk;
  while (const size_t got = std::fread(chunk.data(), 1, chunk.size(), pipe)) {
    result.output.append(chunk.data(), got);
  }
  const int status = ::pclose(pipe);
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  return result;
}

}  // namespace verbena
