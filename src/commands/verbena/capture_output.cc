// SPDX-License-Identifier: Apache-2.0
#include "commands/verbena/capture_output.h"

#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/format.h"

namespace verbena::commands {
namespace {

bool is_trusted(const struct stat& file) {
  return file.st_uid == ::geteuid() || file.st_uid == 0;
}

// Makes a new file, or opens the one at the end of a link that is trusted.
UniqueFd open_at(const std::string& file, int flags) {
  return UniqueFd(::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY | flags, 0600));
}

// Opens what is there now and nothing that is put in its place. Errors: EPERM, it is another user's file,
// pipe or link: that user could read the capture, or have another file of ours overwritten.
Result<UniqueFd> open_what_is_there(const UniqueFd& found, const std::string& file) {
  struct stat seen {};
  if (::fstat(found.get(), &seen) != 0) return fail(errno);
  // /dev/stdout is a link of root's. Its target may be another user's pipe, as under sudo(8).
  const bool is_link = S_ISLNK(seen.st_mode);
  const bool is_ours = is_link ? is_trusted(seen) : seen.st_uid == ::geteuid() || S_ISCHR(seen.st_mode);
  if (!is_ours && !S_ISDIR(seen.st_mode)) return fail(EPERM);
  const std::string same = verbena::format("/proc/self/fd/{}", found.get());
  UniqueFd opened =
      is_link ? open_at(file, 0) : UniqueFd(::open(same.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY));
  if (!opened || ::fstat(opened.get(), &seen) != 0) return fail(errno);
  if (!S_ISREG(seen.st_mode)) return opened;
  if (seen.st_uid == ::geteuid() && ::fchmod(opened.get(), 0600) != 0) return fail(errno);
  if (::ftruncate(opened.get(), 0) != 0) return fail(errno);
  return opened;
}

}  // namespace

Result<CaptureOutput> CaptureOutput::open(const std::string& file) {
  if (file == "-") {
    if (::isatty(STDOUT_FILENO) != 0) return fail(EISDIR);
    UniqueFd copy(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0));
    if (!copy) return fail(errno);
    return CaptureOutput(std::move(copy));
  }
  const UniqueFd found(::open(file.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (!found && errno != ENOENT) return fail(errno);
  if (!found) {
    UniqueFd made = open_at(file, O_EXCL);
    if (!made) return fail(errno);
    return CaptureOutput(std::move(made));
  }
  auto opened = open_what_is_there(found, file);
  if (!opened) return tl::unexpected(opened.error());
  return CaptureOutput(std::move(*opened));
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
