// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace verbena::control {

// The agent's program: VERBENA_AGENT if set, else `wanted` if not empty, else beside the shared object (or
// program) that this code is part of, as installed or in a build tree, else in PATH. Empty: there is none. A
// program that gained privileges (AT_SECURE) heeds neither the environment nor PATH.
std::string find_agent_program(const std::string& wanted);

// The agent's program that libraries in `folder`, which is an absolute path without links, find beside them.
std::string find_agent_beside(const std::string& folder);

// Starts it as a process of its own: no child of the caller's (so no SIGCHLD and no zombie), with none of its
// descriptors, signal settings or session. Takes about a millisecond. The answer becomes readable (end of
// file) when the agent listens, or when it has given up: then another may be listening.
Result<UniqueFd> start_agent(const std::string& program, std::vector<std::string> options = {});

// A set-user-ID or set-group-ID program that an ordinary user has started. By the real user ID, the nice
// value, the cgroup and the limits that an agent would inherit, that user could stop it, or starve all whom
// it serves; and the program's group would be the agent's. It starts none.
bool has_rights_of_another();

// Where this process does not see the directory in which its agent shows the devices
// (base/paths/state_directory.h), as in another container of the agent's pod: starts a mirror that shows them
// here. Returns when programs find them, or when they cannot be shown. REQUIRES: an agent runs
void show_devices_here(const std::string& program);

// The reason in words, for the errno value that start_agent() answered.
const char* why_not_started(int error);

}  // namespace verbena::control
