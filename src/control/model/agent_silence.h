// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>

#include <sys/types.h>

#include "base/time.h"

namespace verbena::control {

// Limits how long a caller waits for an agent.
struct Patience {
  // Maximum wait for an agent to listen while none does, without the time that the start of one takes.
  Duration to_come;
  // Maximum wait for a running agent's answer.
  Duration to_answer;

  static constexpr Duration kAsLongAsItLives = Duration::max();
};

// Returns the time after `patience` from now, or TimePoint::max() for kAsLongAsItLives.
inline TimePoint deadline_after(Duration patience) {
  return patience == Patience::kAsLongAsItLives ? TimePoint::max() : MonotonicClock::now() + patience;
}

// Time that a new agent waits for a process with the previous agent's takeover state. It waits if its user
// already has sockets of UDP port 4791. A process with a takeover state tries to reach the next agent at
// least six times in this period.
inline constexpr Duration kSurvivorWait = std::chrono::milliseconds(300);

// Describes a silent agent for the user: "agent (pid 12) does not respond; it is stopped: 'kill -CONT 12'
// continues it". `pid` is 0 if the agent is in a pid namespace that this process does not see; then the text
// is "agent does not respond".
std::string describe_silence(pid_t pid);

// Returns the process's state letter as in proc(5), or '?' if /proc does not have the process.
char process_state(pid_t pid);

// Logs once that the agent does not respond, two seconds after construction. Used by a thread that waits for
// the agent's reply.
class SilenceLog {
 public:
  explicit SilenceLog(pid_t agent) : agent_(agent), due_(MonotonicClock::now() + kDelay) {}

  // Returns when to call consider(), or TimePoint::max() if the message was logged already.
  TimePoint due() const { return due_; }
  // Logs the message if due() has passed.
  void consider();

 private:
  static constexpr Duration kDelay = std::chrono::seconds(2);

  const pid_t agent_;
  TimePoint due_;
};

}  // namespace verbena::control
