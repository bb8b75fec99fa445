// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <thread>

#include "base/unique_fd.h"

namespace verbena::agent {

// Starts the standby, the process that keeps the takeover state. Starts it from a thread with its own table
// of descriptors, which has no descriptor of a client.
//
// A new process gets a copy of its parent's table, and all copies are closed before it runs. If a client has
// sent a file to the agent, closing the copy waits for the file's server (FUSE, for example), which may never
// answer. So a standby that the agent's own thread started might never run.
//
// Called on the agent's thread.
class StandbyLauncher {
 public:
  StandbyLauncher() = default;
  // Waits until a start that is under way has ended.
  ~StandbyLauncher();
  StandbyLauncher(const StandbyLauncher&) = delete;
  StandbyLauncher& operator=(const StandbyLauncher&) = delete;

  // Starts the thread, and waits until the thread has its own table of descriptors. If it cannot have one
  // (before Linux 5.9), start() starts the standby on the caller's thread. REQUIRES: the agent has no
  // descriptor of a client, nor any of a former agent's takeover state
  void begin();
  // Asks the thread to start a standby, and does not wait for it. The standby gets this process's current
  // standard error. Logs failures, also those of earlier calls.
  void start();

 private:
  // Returns the next message of the thread, or nullopt if there is none.
  std::optional<int> read_answer(bool waits) const;

  UniqueFd requests_;  // each message brings the standard error for a standby
  bool has_own_table_ = false;
  std::thread thread_;
};

}  // namespace verbena::agent
