// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include <sys/types.h>

#include "base/result.h"
#include "base/time.h"
#include "base/unique_fd.h"

namespace verbena::control {

// Limits how long a caller waits for an agent.
struct Patience {
  // Maximum time in which no agent listens. The time in which an agent is being started does not count.
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

// Returns the path of the agent's program: VERBENA_AGENT if set, else `wanted` if not empty. Otherwise
// searches beside the shared object or program that contains this code, as installed or in a build tree, then
// in PATH. Returns an empty string if no program is found. In a program that gained privileges (AT_SECURE),
// ignores VERBENA_AGENT and PATH.
std::string find_agent_program(const std::string& wanted);

// Returns the path of the agent's program that belongs to libraries in `folder`, or an empty string.
// REQUIRES: `folder` is an absolute path without symbolic links
std::string find_agent_beside(const std::string& folder);

// Starts the agent as an independent process. It is no child of the caller (so no SIGCHLD and no zombie). It
// inherits no signal settings, session or descriptors, except standard error if VERBENA_LOG is set, and only
// a few environment variables: settings of Verbena, the language and PATH. Takes about a millisecond. The
// returned descriptor becomes readable (end of file) when the agent listens or has given up, for example
// because another agent listens.
Result<UniqueFd> start_agent(const std::string& program, std::vector<std::string> options = {});
// The same, but does not tell when the agent listens. Opens no descriptor in this process, and does not log.
Result<void> start_agent_alone(const std::string& program, std::vector<std::string> options);

// Returns whether this process has rights that the user who started it lacks: a set-user-ID or set-group-ID
// program, or one with file capabilities, even after it has dropped or completed its change of user
// (AT_SECURE). These programs start no agent. The agent would inherit the environment, nice value, cgroup and
// limits of that user, who could stop it or have it run a program. It would also have the program's group.
bool has_rights_of_another();

// Starts a device mirror if this process does not see its agent's state directory
// (base/paths/state_directory.h), as in another container of the agent's pod. The mirror creates the device
// files where this process sees them. Waits up to 10 s for these files or for the mirror to give up.
// REQUIRES: an agent runs
void show_devices_here(const std::string& program);

// Returns the text for an errno value of start_agent().
const char* why_not_started(int error);

}  // namespace verbena::control
