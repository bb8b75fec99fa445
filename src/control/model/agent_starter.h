// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace verbena::control {

// Finds the agent's program: VERBENA_AGENT if set, else `wanted` if not empty, else beside the shared object
// (or program) that contains this code, as installed or in a build tree, else in PATH. Empty: there is none.
// A program that gained privileges (AT_SECURE) heeds neither the environment nor PATH.
std::string find_agent_program(const std::string& wanted);

// Finds the agent's program for libraries in `folder`, which is an absolute path without links. Empty: there
// is none.
std::string find_agent_beside(const std::string& folder);

// Starts the agent as an independent process: no child of the caller (so no SIGCHLD and no zombie), with none
// of its descriptors, signal settings or session. Takes about a millisecond. The returned descriptor becomes
// readable (end of file) when the agent listens, or has given up: then another may be listening.
Result<UniqueFd> start_agent(const std::string& program, std::vector<std::string> options = {});

// Whether this is a set-user-ID or set-group-ID program that an ordinary user has started. These programs
// start no agent: through the real user ID, the nice value, the cgroup and the limits that the agent would
// inherit, that user could stop it or starve its users. It would also have the program's group.
bool has_rights_of_another();

// Starts a mirror if this process does not see the directory in which its agent shows the devices
// (base/paths/state_directory.h), as in another container of the agent's pod. The mirror shows the devices
// here. Returns when programs find them, or when they cannot be shown. REQUIRES: an agent runs
void show_devices_here(const std::string& program);

// The text for an errno value of start_agent().
const char* why_not_started(int error);

}  // namespace verbena::control
