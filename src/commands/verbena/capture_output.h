// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/bytes.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace verbena::commands {

// The destination of a capture: a file, or standard output if its name is "-".
class CaptureOutput {
 public:
  // Opens `file` for writing and empties it. Makes this user's file readable for this user only, since a
  // capture holds the data that programs send. Fails with EPERM if another user's file, pipe or link is
  // there, and with EISDIR for a directory. Also fails with EISDIR for "-" if standard output is a terminal,
  // which cannot show binary data.
  static Result<CaptureOutput> open(const std::string& file);

  // Writes all bytes. Fails with EPIPE if the reader of the pipe has closed it.
  Result<void> write(ConstBytes bytes);
  int fd() const { return fd_.get(); }

 private:
  explicit CaptureOutput(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace verbena::commands
