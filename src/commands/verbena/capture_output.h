// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/bytes.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace verbena::commands {

// Where a capture goes: a file, or standard output as "-".
class CaptureOutput {
 public:
  // What is in the file already is lost. Only its owner may read it: it has what programs send. EISDIR also
  // for a terminal as standard output, which would not take bytes well.
  static Result<CaptureOutput> open(const std::string& file);

  // EPIPE: who reads has gone.
  Result<void> write(ConstBytes bytes);
  int fd() const { return fd_.get(); }

 private:
  explicit CaptureOutput(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace verbena::commands
