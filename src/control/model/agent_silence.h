// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>

#include <sys/types.h>

#include "base/time.h"

namespace verbena::control {

// How long to wait for an agent.
struct Patience {
  // Until one listens, if none does. The start of an agent is waited for beyond that.
  Duration to_come;
  // Until one that lives answers.
  Duration to_answer;

  static constexpr Duration kAsLongAsItLives = Duration::max();
};

// The end of a period that begins now; TimePoint::max(): never.
inline TimePoint deadline_after(Duration patience) {
  return patience == Patience::kAsLongAsItLives ? TimePoint::max() : MonotonicClock::now() + patience;
}

// How long a new agent waits for a process that holds the takeover state of the previous one, if the port
// shows that there is one. A process that holds it looks for the next agent several times in this period,
// however long there has been none.
inline constexpr Duration kSurvivorWait = std::chrono::milliseconds(300);

// Describes a silent agent for the user: "agent (pid 12) does not respond; it is stopped: 'kill -CONT 12'
// continues it". `pid` is 0 for one in a pid namespace that this process does not see.
std::string describe_silence(pid_t pid);

// The process's state letter as in proc(5); '?': /proc does not say.
char process_state(pid_t pid);

// Logs once that the agent does not respond, two seconds after the SilenceLog was made. Used by one thread.
class SilenceLog {
 public:
  explicit SilenceLog(pid_t agent) : agent_(agent), due_(MonotonicClock::now() + kDelay) {}

  // When to call consider() next; TimePoint::max(): it was logged.
  TimePoint due() const { return due_; }
  // Logs if it is time to.
  void consider();

 private:
  static constexpr Duration kDelay = std::chrono::seconds(2);

  const pid_t agent_;
  TimePoint due_;
};

}  // namespace verbena::control
