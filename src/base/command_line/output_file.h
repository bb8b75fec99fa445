// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/unique_fd.h"

namespace verbena::command_line {

// The users who may read a file that a command writes.
enum class OutputReaders : uint8_t {
  kThisUser,  // nobody else, also if the file was there before
  kAsUsual,   // as umask(2) says, or as before
};

// Opens the destination of a command's output: a file, or standard output if its name is "-". Empties the
// file. Fails with EPERM if another user's file, pipe or link is there, and with EISDIR for a directory. Also
// fails with EISDIR for "-" if standard output is a terminal, which cannot show binary data.
Result<UniqueFd> open_output(const std::string& file, OutputReaders readers);

// Writes a text to a file that open_output() opens.
Result<void> write_output(const std::string& file, std::string_view text);

}  // namespace verbena::command_line
