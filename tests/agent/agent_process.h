// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <sys/prctl.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/time.h"

namespace verbena::test {

// Polls `condition` for up to ten seconds. Returns whether it became true.
inline bool eventually(const std::function<bool()>& condition) {
  const auto deadline = MonotonicClock::now() + std::chrono::seconds(10);
  while (!condition()) {
    if (MonotonicClock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

// Returns the pid of a process of this name in this network namespace; 0 if there is none.
inline pid_t find_process(const std::string& name) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path here = fs::read_symlink("/proc/self/ns/net", ignored);
  for (const fs::directory_entry& process : fs::directory_iterator("/proc", ignored)) {
    const std::string pid = process.path().filename();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    std::string program;
    std::ifstream(process.path() / "comm") >> program;
    std::error_code unreadable;
    const bool is_here = fs::read_symlink(process.path() / "ns/net", unreadable) == here;
    if (program == name && is_here) return std::stoi(pid);
  }
  return 0;
}

// Runs the agent's program as a child, by default in the foreground. It aborts if its main thread closes a
// Unix socket (close_check.c), except in tests with sanitizers, which must be loaded first.
class AgentProcess {
 public:
  explicit AgentProcess(std::vector<std::string> options = {"--foreground"}) {
    int ready[2];
    if (::pipe(ready) != 0) return;
    // Allocate before fork(): another thread of a sanitized test may hold the allocator's lock.
    options.insert(options.begin(), VERBENA_AGENT_PROGRAM);
    options.push_back("--ready-fd=" + std::to_string(ready[1]));
    std::vector<char*> arguments;
    for (std::string& option : options) arguments.push_back(option.data());
    arguments.push_back(nullptr);
    std::vector<char*> environment;
    for (char** variable = ::environ; *variable != nullptr; ++variable) environment.push_back(*variable);
#ifdef VERBENA_CLOSE_CHECK
    char preload[] = "LD_PRELOAD=" VERBENA_CLOSE_CHECK;
    environment.push_back(preload);
#endif
    environment.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(ready[0]);
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // also if the test is killed
      ::execve(arguments[0], arguments.data(), environment.data());
      ::_exit(127);
    }
    ::close(ready[1]);
    char byte;
    [[maybe_unused]] const ssize_t end =
        ::read(ready[0], &byte, 1);  // returns when the agent listens or has ended
    ::close(ready[0]);
  }
  ~AgentProcess() {
    stop(SIGTERM);
  }
  AgentProcess(const AgentProcess&) = delete;
  AgentProcess& operator=(const AgentProcess&) = delete;

  pid_t pid() const {
    return pid_;
  }
  // Returns the exit status as waitpid(2) gives it; -1 if it was stopped before.
  int stop(int signal) {
    if (pid_ > 0) ::kill(pid_, signal);
    return wait();
  }
  int wait() {
    int status = -1;
    if (pid_ > 0) ::waitpid(std::exchange(pid_, -1), &status, 0);
    return status;
  }

 private:
  pid_t pid_ = -1;
};

}  // namespace verbena::test
