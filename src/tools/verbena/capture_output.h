// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/bytes.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace verbena::tools {

// Where a capture goes: a file, or standard output as "-".
class CaptureOutput {
 public:
  // Empties a file that is there. Only its owner may read it from then on: it has what programs send. Errors:
  // EPERM, another user's file, pipe or link is there; EISDIR, also for a terminal as standard output, which
  // would not take bytes well.
  static Result<CaptureOutput> open(const std::string& file);

  // EPIPE: who reads has gone.
  Result<void> write(ConstBytes bytes);
  int fd() const { return fd_.get(); }

 private:
  explicit CaptureOutput(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace verbena::tools
