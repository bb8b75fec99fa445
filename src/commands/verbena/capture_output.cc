// SPDX-License-Identifier: Apache-2.0
#include "commands/verbena/capture_output.h"

#include <cerrno>

#include <fcntl.h>
#include <unistd.h>

namespace verbena::commands {

Result<CaptureOutput> CaptureOutput::open(const std::string& file) {
  if (file == "-") {
    if (::isatty(STDOUT_FILENO) != 0) return fail(EISDIR);
    UniqueFd copy(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0));
    if (!copy) return fail(errno);
    return CaptureOutput(std::move(copy));
  }
  UniqueFd fd(::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!fd) return fail(errno);
  return CaptureOutput(std::move(fd));
}

Result<void> CaptureOutput::write(ConstBytes bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(fd_.get(), bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return fail(errno);
    bytes = bytes.subspan(static_cast<size_t>(put));
  }
  return {};
}

}  // namespace verbena::commands
