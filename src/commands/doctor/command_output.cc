// SPDX-License-Identifier: Apache-2.0
#include "commands/doctor/command_output.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/unique_fd.h"
#include "commands/verbena/program_file.h"

namespace verbena::commands::doctor {
namespace {

constexpr size_t kMaxBytes = 8 << 20;

std::string find_command(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  const char* path = std::getenv("PATH");
  for (const std::string& folder :
       split(std::string(path == nullptr ? "" : path) + ":/usr/sbin:/sbin:/usr/bin:/bin", ":")) {
    const std::string candidate = folder + "/" + name;
    if (candidate[0] == '/' && ::access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return {};
}

struct Pipe {
  UniqueFd reading;
  UniqueFd writing;
};

std::optional<Pipe> make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return std::nullopt;
  return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

// Returns the child's environment: ours, with entries of `added` in place of those with the same name.
std::vector<std::string> merged(const std::vector<std::string>& added) {
  std::vector<std::string> all = added;
  for (char** one = environ; *one != nullptr; ++one) {
    const std::string entry = *one;
    const std::string name = entry.substr(0, entry.find('=') + 1);
    const bool replaced = std::any_of(added.begin(), added.end(),
                                      [&](const std::string& other) { return other.starts_with(name); });
    if (!replaced) all.push_back(entry);
  }
  return all;
}

std::vector<char*> pointers_to(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

pid_t spawn(const std::string& program, const std::vector<std::string>& words,
            const std::vector<std::string>& environment, int out, int errors) {
  posix_spawn_file_actions_t actions;
  if (posix_spawn_file_actions_init(&actions) != 0) return -1;
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out, 1);
  posix_spawn_file_actions_adddup2(&actions, errors, 2);
  pid_t pid = -1;
  const int error = posix_spawn(&pid, program.c_str(), &actions, nullptr, pointers_to(words).data(),
                                pointers_to(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  return error == 0 ? pid : -1;
}

// Reads a block and appends it to `into`. False at the end of the output.
bool read_some(int fd, std::string& into) {
  std::array<char, 16 << 10> block;
  const ssize_t count = ::read(fd, block.data(), block.size());
  if (count < 0) return errno == EINTR || errno == EAGAIN;
  into.append(block.data(),
              std::min(static_cast<size_t>(count), kMaxBytes - std::min(kMaxBytes, into.size())));
  return count > 0;
}

// Reads both pipes to their ends. False if `deadline` comes first.
bool read_both(int out, int errors, TimePoint deadline, CommandOutput& output) {
  std::array<pollfd, 2> entries = {{{out, POLLIN, 0}, {errors, POLLIN, 0}}};
  while (entries[0].fd >= 0 || entries[1].fd >= 0) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - MonotonicClock::now());
    if (left.count() <= 0) return false;
    if (::poll(entries.data(), entries.size(), static_cast<int>(left.count()) + 1) < 0 && errno != EINTR)
      return false;
    if (entries[0].revents != 0 && !read_some(out, output.out)) entries[0].fd = -1;
    if (entries[1].revents != 0 && !read_some(errors, output.errors)) entries[1].fd = -1;
  }
  return true;
}

// Waits for the end of a child. False if `deadline` comes first. True at once if the kernel has no pidfds
// (before Linux 5.3).
bool await_end(pid_t pid, TimePoint deadline) {
  const UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!process) return true;
  pollfd entry{process.get(), POLLIN, 0};
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - MonotonicClock::now());
    const auto milliseconds = static_cast<int>(std::max<int64_t>(left.count(), 0));
    const int ended = ::poll(&entry, 1, milliseconds);
    if (ended > 0 || (ended < 0 && errno != EINTR)) return true;
    if (milliseconds == 0) return false;
  }
}

int exit_status_of(pid_t pid) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) return 127;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

std::optional<CommandOutput> run_command(const std::vector<std::string>& words, Duration patience,
                                         const std::vector<std::string>& environment) {
  const std::string program = find_command(words.front());
  auto out = make_pipe();
  auto errors = make_pipe();
  if (program.empty() || !out || !errors) return std::nullopt;
  const pid_t pid = spawn(program, words, merged(environment), out->writing.get(), errors->writing.get());
  out->writing.reset();
  errors->writing.reset();
  if (pid < 0) return std::nullopt;
  CommandOutput output;
  const TimePoint deadline = MonotonicClock::now() + patience;
  output.timed_out =
      !read_both(out->reading.get(), errors->reading.get(), deadline, output) || !await_end(pid, deadline);
  if (output.timed_out) ::kill(pid, SIGKILL);
  output.status = exit_status_of(pid);
  return output;
}

}  // namespace verbena::commands::doctor
