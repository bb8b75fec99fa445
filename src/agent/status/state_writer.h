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

// Keeps the state tree on a thread of its own, so that a slow file system does not keep the agent from
// answering. What was not yet written when something newer comes is skipped; what cannot be written is tried
// again from time to time. Its methods are for one thread.
class StateWriter {
 public:
  explicit StateWriter(std::string directory);
  // Removes the tree, which may take long.
  ~StateWriter();
  // The last call: what another agent makes under the tree's name is its own from now on. False: the tree
  // still has its name, and has to be removed before another agent comes.
  bool step_aside();

  void show(const std::vector<control::Link>& links);
  void show_counters(std::map<std::string, DeviceCounters> by_link);
  // Who reads the counters; for the thread that calls us.
  CounterReaders& readers() { return tree_.readers(); }
  // Until all of it is in the file system, or the deadline has come.
  void wait(TimePoint deadline);

 private:
  void run();
  void stop();
  // For the thread: whether there is something better to do than to remove what is not shown any more.
  bool is_wanted();

  StateTree tree_;  // of the thread
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<std::vector<control::Link>> links_;
  std::map<std::string, DeviceCounters> counters_;
  bool writing_ = false;
  bool stop_ = false;
  std::thread thread_;  // there may be none
};

}  // namespace verbena::agent
