// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <fstream>
#include <string>
#include <thread>
#include <utility>

#include <unistd.h>

#include "base/time.h"

namespace verbena::test {

// A thread that is expected to block in a call. The test asks the kernel whether the thread sleeps: time
// alone cannot distinguish a call that blocks from one that has not begun yet.
class WatchedThread {
 public:
  template <class Action>
  explicit WatchedThread(Action action)
      : thread_([this, action = std::move(action)]() mutable {
          id_ = ::gettid();
          action();
          ended_ = true;
        }) {}
  ~WatchedThread() { join(); }
  WatchedThread(const WatchedThread&) = delete;
  WatchedThread& operator=(const WatchedThread&) = delete;

  // Waits until the thread sleeps in the kernel. False if its action ends first, or if ten seconds pass.
  bool falls_asleep() {
    const auto deadline = MonotonicClock::now() + std::chrono::seconds(10);
    while (!ended_ && MonotonicClock::now() < deadline) {
      if (id_ != 0 && sleeps()) return !ended_;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }
  bool ended() const { return ended_; }
  void join() {
    if (thread_.joinable()) thread_.join();
  }

 private:
  // proc(5): the state is the first field after the name in parentheses.
  bool sleeps() const {
    std::ifstream file("/proc/self/task/" + std::to_string(id_) + "/stat");
    std::string line;
    std::getline(file, line);
    const size_t name_end = line.rfind(')');
    if (name_end == std::string::npos) return false;
    const char state = name_end + 2 < line.size() ? line[name_end + 2] : '?';
    return state == 'S' || state == 'D';
  }

  std::atomic<pid_t> id_{0};
  std::atomic<bool> ended_{false};
  std::thread thread_;  // last, since it uses the other members
};

}  // namespace verbena::test
