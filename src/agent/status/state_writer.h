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

// Maintains a StateTree (the state directory) on a thread of its own, so that a slow file system does not
// delay the agent's answers. Skips states that are superseded before they are written, and repeats a failed
// show() every second. All methods are called on one thread.
class StateWriter {
 public:
  explicit StateWriter(std::string directory);
  // Stops the thread and removes the directory, which may take long.
  ~StateWriter();
  // Stops the thread and renames the directory, so that the next agent can use the name. Returns false if the
  // directory could not be renamed; then the caller must destroy this object before the next agent starts.
  // REQUIRES: this is the last call
  bool step_aside();

  // Queue links and counters to be written, and return at once. Counters of unknown links are dropped.
  void show(const std::vector<control::Link>& links);
  void show_counters(std::map<std::string, DeviceCounters> by_link);
  // Returns the readers of the counter files, for the thread that calls these methods.
  CounterReaders& readers() { return tree_.readers(); }
  // Waits until the thread has tried to write all queued states, or until the deadline.
  void wait(TimePoint deadline);

 private:
  void run();
  void stop();
  // Returns whether the thread has more urgent work than to remove replaced folders.
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
