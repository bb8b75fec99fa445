// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <thread>

#include "base/unique_fd.h"

namespace verbena::agent {

// Starts the standby, the process that keeps the takeover state. Does it on a thread that has a table of
// descriptors of its own, without any descriptor of a client.
//
// A new process gets a copy of its parent's table, and all copies are closed before it runs. Closing the copy
// of a file that a client has sent waits for the file's server, which may never answer. So a standby that the
// agent's own thread started might never come.
//
// Called on the agent's thread.
class StandbyLauncher {
 public:
  StandbyLauncher() = default;
  // Waits until a start that is under way has ended.
  ~StandbyLauncher();
  StandbyLauncher(const StandbyLauncher&) = delete;
  StandbyLauncher& operator=(const StandbyLauncher&) = delete;

  // Starts the thread, and waits until it has its own table. If that fails (before Linux 5.9), start() works
  // on the caller's thread. REQUIRES: the agent has no descriptor of a client, nor any of a former
  // agent's takeover state
  void begin();
  // Has a standby started soon, with this process's present standard error. Does not wait. Logs failures,
  // also those of earlier calls.
  void start();

 private:
  // Returns the next message of the thread, or nullopt if there is none.
  std::optional<int> read_answer(bool waits) const;

  UniqueFd requests_;  // each message brings the standard error for a standby
  bool has_own_table_ = false;
  std::thread thread_;
};

}  // namespace verbena::agent
