// SPDX-License-Identifier: Apache-2.0
#include "base/command_line/output_file.h"

#include <array>
#include <cerrno>
#include <climits>

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/format.h"

namespace verbena::command_line {

namespace {

mode_t mode_of(OutputReaders readers) {
  return readers == OutputReaders::kThisUser ? 0600 : 0666;
}

bool is_trusted(const struct stat& file) {
  return file.st_uid == ::geteuid() || file.st_uid == 0;
}

UniqueFd open_to_write(int directory, const char* file, int flags, mode_t mode) {
  return UniqueFd(::openat(directory, file, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY | flags, mode));
}

// Whether only root and this user put names into a directory, apart from a shared one in which nobody
// replaces the names of others.
bool is_trusted_directory(int directory) {
  struct stat seen {};
  return ::fstat(directory, &seen) == 0 && is_trusted(seen) &&
         ((seen.st_mode & S_IWOTH) == 0 || (seen.st_mode & S_ISVTX) != 0);
}

// Opens the target of a link. Reads the text from the descriptor, because the directory's owner may replace
// the link meanwhile. In /proc nobody can, and the text of a link there is not always the name of its target.
Result<UniqueFd> open_target(int link, int directory, const std::string& name, mode_t mode) {
  struct statfs system {};
  if (::fstatfs(link, &system) != 0) return fail(errno);
  std::array<char, PATH_MAX> text{};
  if (system.f_type == PROC_SUPER_MAGIC) {
    name.copy(text.data(), text.size() - 1);
  } else if (::readlinkat(link, "", text.data(), text.size() - 1) < 0) {
    return fail(errno);
  } else if (text[0] != '/' && !is_trusted_directory(directory)) {
    return fail(EPERM);
  }
  UniqueFd opened = open_to_write(directory, text.data(), 0, mode);
  if (!opened) return fail(errno);
  return opened;
}

// Opens what is there now and nothing that is put in its place. Errors: EPERM, it is another user's file,
// pipe or link: that user could read the output, or have another file of ours overwritten.
Result<UniqueFd> open_what_is_there(const UniqueFd& found, int directory, const std::string& name,
                                    OutputReaders readers) {
  struct stat seen {};
  if (::fstat(found.get(), &seen) != 0) return fail(errno);
  // /dev/stdout is a link of root's. Its target may be another user's pipe, as under sudo(8).
  const bool is_link = S_ISLNK(seen.st_mode);
  const bool is_ours = is_link ? is_trusted(seen) : seen.st_uid == ::geteuid() || S_ISCHR(seen.st_mode);
  if (!is_ours && !S_ISDIR(seen.st_mode)) return fail(EPERM);
  UniqueFd opened;
  if (is_link) {
    auto target = open_target(found.get(), directory, name, mode_of(readers));
    if (!target) return target;
    opened = std::move(*target);
  } else {
    const std::string same = verbena::format("/proc/self/fd/{}", found.get());
    opened = UniqueFd(::open(same.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY));
  }
  if (!opened || ::fstat(opened.get(), &seen) != 0) return fail(errno);
  if (!S_ISREG(seen.st_mode)) return opened;
  const bool is_private = readers == OutputReaders::kThisUser;
  if (is_private && seen.st_uid == ::geteuid() && ::fchmod(opened.get(), mode_of(readers)) != 0)
    return fail(errno);
  if (::ftruncate(opened.get(), 0) != 0) return fail(errno);
  return opened;
}

}  // namespace

Result<UniqueFd> open_output(const std::string& file, OutputReaders readers) {
  if (file == "-") {
    if (::isatty(STDOUT_FILENO) != 0) return fail(EISDIR);
    UniqueFd output(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0));
    if (!output) return fail(errno);
    return output;
  }
  const size_t slash = file.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : file.substr(0, slash + 1);
  const std::string name = slash == std::string::npos ? file : file.substr(slash + 1);
  if (name.empty()) return fail(file.empty() ? ENOENT : EISDIR);
  const UniqueFd directory(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!directory) return fail(errno);
  const UniqueFd found(::openat(directory.get(), name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (found) return open_what_is_there(found, directory.get(), name, readers);
  if (errno != ENOENT) return fail(errno);
  UniqueFd made = open_to_write(directory.get(), name.c_str(), O_EXCL, mode_of(readers));
  if (!made) return fail(errno);
  return made;
}

Result<void> write_output(const std::string& file, std::string_view text) {
  const auto output = open_output(file, OutputReaders::kAsUsual);
  if (!output) return fail(output.error().code);
  while (!text.empty()) {
    const ssize_t written = ::write(output->get(), text.data(), text.size());
    if (written < 0 && errno != EINTR) return fail(errno);
    text.remove_prefix(written > 0 ? static_cast<size_t>(written) : 0);
  }
  return {};
}

}  // namespace verbena::command_line
