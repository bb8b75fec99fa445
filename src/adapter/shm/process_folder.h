// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cerrno>
#include <cstdio>
#include <optional>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "base/result.h"
#include "base/unique_fd.h"

namespace verbena::engine {

// The folder /proc/PID of one process, opened as a descriptor. It never shows another process: after the
// process has ended, nothing is found here, even if another process gets its pid. REQUIRES: cancellation is
// off (CancellationOff).
class ProcessFolder {
 public:
  // Errors: the kernel's.
  static Result<ProcessFolder> open(pid_t process) {
    std::array<char, 32> path{};
    std::snprintf(path.data(), path.size(), "/proc/%d", process);
    UniqueFd folder(::open(path.data(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!folder) return fail(errno);
    return ProcessFolder(std::move(folder));
  }

  UniqueFd open(const char* path, int flags) const {
    return UniqueFd(::openat(folder_.get(), path, flags | O_CLOEXEC));
  }
  std::optional<struct stat> look_at(const char* path) const {
    struct stat found {};
    if (::fstatat(folder_.get(), path, &found, 0) != 0) return std::nullopt;
    return found;
  }

 private:
  explicit ProcessFolder(UniqueFd folder) : folder_(std::move(folder)) {}

  UniqueFd folder_;
};

}  // namespace verbena::engine
