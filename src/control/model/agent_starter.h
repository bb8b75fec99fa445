// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace verbena::control {

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
