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
  // Mode 0600, also if the file existed before. Another user's file, reached by a link, keeps its mode.
  kThisUser,
  kAsUsual,  // as umask(2) says; an existing file keeps its mode
};

// Opens `file` for a command's output, or standard output if the name is "-". Creates a missing file, and
// empties a regular file. Follows a link only if root or this user owns the link; its target may be anyone's.
// Does not follow a relative link if other users may replace names in its folder. Errors: EPERM for a link
// that is not followed, and for another user's file or pipe (another user's device is allowed). EISDIR for a
// directory, and for "-" if standard output is a terminal, which cannot show binary data. Otherwise those of
// open(2).
Result<UniqueFd> open_output(const std::string& file, OutputReaders readers);

// Opens `file` by open_output() with kAsUsual, and writes the whole text to it. Errors: also those of
// write(2).
Result<void> write_output(const std::string& file, std::string_view text);

}  // namespace verbena::command_line
