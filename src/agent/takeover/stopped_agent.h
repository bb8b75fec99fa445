// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include <sys/types.h>

#include "agent/slots/forwarder.h"
#include "agent/takeover/takeover_state.h"
#include "base/time.h"
#include "base/unique_fd.h"

namespace verbena::agent {

// Forwards packets in the agent's place while the agent is stopped (SIGSTOP, a debugger). Without that,
// processes that have no socket of UDP port 4791 would receive nothing, and their peers would give up after
// half a second. Runs in the standby process, which has the agent's takeover state and thereby the sockets.
//
// A thread checks every 100 ms whether the agent's process is stopped. Just after the agent resumes, both
// processes forward for a moment, so packets may be reordered. The standby cannot send to the former holder
// of a slot that was returned meanwhile, because Wire::hang_up() has shut down the slot's pair.
class StoppedAgent {
 public:
  StoppedAgent();
  ~StoppedAgent();
  StoppedAgent(const StoppedAgent&) = delete;
  StoppedAgent& operator=(const StoppedAgent&) = delete;

  // Sets the process to watch and the receiving end of its takeover state. `agent` is the agent's pid, or 0
  // while there is no agent.
  void watch(pid_t agent, UniqueFd takeover_state);

 private:
  void run();
  void consider();
  void begin();
  void end();

  std::mutex mutex_;
  std::condition_variable wake_;
  // Under the mutex
  bool ended_ = false;
  pid_t agent_ = 0;
  UniqueFd takeover_state_;
  // The thread's own
  TakeoverState::Contents contents_;
  std::optional<Forwarder> forwarder_;  // while the agent is stopped; takes descriptors of `contents_`
  std::thread thread_;
};

}  // namespace verbena::agent
