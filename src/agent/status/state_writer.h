// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "agent/status/state_tree.h"
#include "base/time.h"
#include "control/model/link.h"

namespace verbena::agent {

// Maintains the state tree on a thread of its own, so that a slow file system does not delay the agent's
// answers. Skips states that are superseded before they are written, and retries failed writes every second.
// Its methods are for one thread.
class StateWriter {
 public:
  explicit StateWriter(std::string directory);
  // Removes the tree, which may take long.
  ~StateWriter();
  // Stops the thread and renames the tree, so that the next agent can use the name. False if the tree keeps
  // its name; then it must be removed before the next agent starts. REQUIRES: this is the last call
  bool step_aside();

  void show(const std::vector<control::Link>& links);
  void show_counters(std::map<std::string, DeviceCounters> by_link);
  // The readers of counter files; for the caller's thread.
  CounterReaders& readers() { return tree_.readers(); }
  // Waits until everything is written, or until the deadline.
  void wait(TimePoint deadline);

 private:
  void run();
  void stop();
  // For the thread: whether there is more urgent work than removing discarded folders.
  bool is_wanted();

  StateTree tree_;  // used by the thread
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<std::vector<control::Link>> links_;
  std::map<std::string, DeviceCounters> counters_;
  bool writing_ = false;
  bool stop_ = false;
  std::thread thread_;  // absent if it could not be started
};

}  // namespace verbena::agent
