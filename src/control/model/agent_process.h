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

// Limits how long a caller waits for an agent that listens, and then for each of its answers.
struct Patience {
  // Maximum wait for an agent that listens. The time in which an agent is being started does not count.
  Duration to_come;
  // Maximum wait for an answer of a running agent. kAsLongAsItLives: no limit while the agent's process
  // exists.
  Duration to_answer;

  static constexpr Duration kAsLongAsItLives = Duration::max();
};

// Returns the time after `patience` from now, or TimePoint::max() for kAsLongAsItLives.
inline TimePoint deadline_after(Duration patience) {
  return patience == Patience::kAsLongAsItLives ? TimePoint::max() : MonotonicClock::now() + patience;
}

// The time that a new agent waits for a process that has the previous agent's takeover state
// (docs/glossary.md). The new agent waits only if its user already has sockets of UDP port 4791. The time is
// enough for a process with a takeover state to try at least six times to reach the new agent.
inline constexpr Duration kSurvivorWait = std::chrono::milliseconds(300);

// Describes a silent agent for the user: "agent (pid 12) does not respond; it is stopped: 'kill -CONT 12'
// continues it". `pid` is 0 if the agent is in a pid namespace that this process does not see; then the text
// is "agent does not respond".
std::string describe_silence(pid_t pid);

// Returns the process's state letter as in proc(5), or '?' if /proc does not have the process.
char process_state(pid_t pid);

// Logs one error if the agent has not responded two seconds after this object was constructed. A thread that
// waits for the agent's reply calls consider() when due() comes. `agent` is 0 if the pid is unknown.
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
// searches the installation or build tree that the library or program with this code belongs to, then PATH.
// Returns an empty string if no program is found. In a program that gained privileges (AT_SECURE), ignores
// VERBENA_AGENT and PATH.
std::string find_agent_program(const std::string& wanted);

// Searches the installation or build tree that `folder` belongs to, a folder of Verbena's libraries or
// programs. Returns the path of the agent's program, or an empty string if none is found. REQUIRES: `folder`
// is an absolute path without symbolic links
std::string find_agent_beside(const std::string& folder);

// Starts the agent as an independent process. The agent is no child of the caller (so no SIGCHLD and no
// zombie). The agent inherits no signal settings, session or descriptors, except standard error if
// VERBENA_LOG is set. It inherits few environment variables: settings of Verbena, the language and PATH.
// Takes about a millisecond. Returns a descriptor that becomes readable (end of file) when the agent listens
// or has given up, for example because another agent listens. Errors: those of pipe2(2), and those of
// clone(2) and execve(2), which are also logged.
Result<UniqueFd> start_agent(const std::string& program, std::vector<std::string> options = {});
// Like start_agent(), but opens no descriptor in this process, and does not log. The caller cannot wait until
// the agent listens.
Result<void> start_agent_alone(const std::string& program, std::vector<std::string> options);

// Returns whether this process has rights that the user who started it lacks: a set-user-ID or set-group-ID
// program, or one with file capabilities. Stays true after the program has dropped these rights (AT_SECURE).
// These programs start no agent. The agent would inherit the environment, nice value, cgroup and limits of
// the user who started the program. This user could stop the agent or make it run a program. The agent would
// also have the program's group.
bool has_rights_of_another();

// Starts a device mirror if this process does not see its agent's state directory
// (base/paths/state_directory.h), as in another container of the agent's pod. The mirror is a process that
// creates the agent's device files where this process sees them. Waits up to 10 s until the files exist or
// the mirror has given up. Does nothing if VERBENA_SYS_DIR is set or has_rights_of_another(). `program`: as
// `wanted` of find_agent_program(). REQUIRES: an agent runs
void show_devices_here(const std::string& program);

// Returns the reason why start_agent() failed, for this errno value. Often the cause is that /proc or
// /dev/null is missing. If so, returns a text about that file (paths::missing_system_file()).
const char* why_not_started(int error);

}  // namespace verbena::control
