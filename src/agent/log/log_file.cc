// SPDX-License-Identifier: Apache-2.0
#include "agent/log/log_file.h"

#include <cerrno>
#include <cstdio>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/paths/state_directory.h"
#include "base/paths/state_path.h"
#include "base/paths/users.h"
#include "base/unique_fd.h"

namespace verbena::agent {

namespace {

// Waits until standard error accepts more. Another program that shares the open file may have made it
// non-blocking.
void wait_for_room() {
  pollfd entry{STDERR_FILENO, POLLOUT, 0};
  ::poll(&entry, 1, -1);
}

bool write_all(std::string_view& rest) {
  while (!rest.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, rest.data(), rest.size());
    if (written > 0) {
      rest.remove_prefix(static_cast<size_t>(written));
    } else if (written < 0 && errno == EAGAIN) {
      wait_for_room();
    } else if (written == 0 || errno != EINTR) {
      return false;
    }
  }
  return true;
}

}  // namespace

bool LogOutput::put(std::string_view line) {
  std::string_view end = is_torn_ ? "\n" : "";
  if (!write_all(end)) return false;
  is_torn_ = false;
  std::string_view rest = line;
  if (write_all(rest)) return true;
  is_torn_ = rest.size() < line.size();
  return false;
}

namespace {

// Returns <home>/<prefix><network namespace>, beside the traces. Empty if another user can write to <home>:
// the path could be a pipe without a reader, or a file that other users can read.
std::string path_with(std::string_view prefix) {
  const std::string state = paths::state_directory_for(paths::own_user());
  const size_t slash = state.rfind('/');
  if (slash == std::string::npos) return {};
  if (!paths::is_private_directory(state.substr(0, slash).c_str(), paths::own_user())) return {};
  return state.substr(0, slash + 1).append(prefix).append(state.substr(slash + 1));
}

// Opens the log, or /dev/null if that fails. Does not follow a symbolic link, which is never the agent's.
UniqueFd open_log(const std::string& path) {
  constexpr int kHow = O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  UniqueFd fd(path.empty() ? -1 : ::open(path.c_str(), kHow, 0600));
  struct stat status {};
  if (fd && ::fstat(fd.get(), &status) == 0 && S_ISREG(status.st_mode)) return fd;
  return UniqueFd(::open("/dev/null", O_WRONLY | O_CLOEXEC));
}

}  // namespace

std::string log_file_path() {
  return path_with("log-");
}

std::string old_log_file_path() {
  return path_with("old-log-");
}

bool LogFile::is_needed() {
  struct stat status {};
  return ::fstat(STDERR_FILENO, &status) == 0 && (S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode));
}

LogFile::LogFile(std::string path, std::string old_path, off_t max_bytes)
    : path_(std::move(path)), old_path_(std::move(old_path)), max_bytes_(max_bytes) {
  open();
  look_at_size();
}

bool LogFile::put(std::string_view line) {
  const bool is_written = output_.put(line);
  look_at_size();
  return is_written;
}

void LogFile::open() {
  if (const UniqueFd fd = open_log(path_)) ::dup3(fd.get(), STDERR_FILENO, 0);
}

void LogFile::look_at_size() {
  struct stat status {};
  if (::fstat(STDERR_FILENO, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > max_bytes_ &&
      std::rename(path_.c_str(), old_path_.c_str()) == 0) {
    open();
  }
}

}  // namespace verbena::agent
