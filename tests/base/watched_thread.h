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

// A thread of a test that is to block in a call. To see that it does, the test asks the kernel whether the
// thread sleeps: time alone cannot tell a call that waits from one that has not begun yet.
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

  // Waits until the thread sleeps in the kernel. False: its action ended first, or neither came within ten
  // seconds.
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
  // proc(5): the state is the first field after the name, which stands in parentheses.
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
  std::thread thread_;  // last: it uses the others
};

}  // namespace verbena::test
