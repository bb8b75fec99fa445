// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>

#include "base/unique_fd.h"

namespace verbena::agent {

// An agent holds this lock on its state directory for as long as it lives, whatever ends it.
UniqueFd lock_state_directory(const std::string& directory);

// The inode numbers of the network namespaces of all processes that can be seen.
std::set<uint64_t> living_network_namespaces();

// Removes what agents that were killed have left in `home` (paths::state_home_for()) for network namespaces
// that are gone: nobody else would. A directory stays while an agent holds its lock, or its namespace is
// among `living`: a killed agent's successor goes on with it. At most so many at once; answers how many it
// removed.
size_t sweep_state_directories(const std::string& home, const std::set<uint64_t>& living, size_t most);

}  // namespace verbena::agent
