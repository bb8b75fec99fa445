// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include <sys/types.h>

#include "base/unique_fd.h"

namespace verbena::agent {

// Returns the start time of the process in clock ticks since boot, or 0 if unknown. Pid and start time
// together identify a process for good. Readers in different time namespaces get the same value, within one
// tick.
uint64_t start_time_of(pid_t pid);
bool is_same_start(uint64_t one, uint64_t other);
// Returns a pidfd, which becomes readable when the process ends. Empty if it has ended, or belongs to a pid
// namespace that the agent does not see.
UniqueFd watch_process(pid_t pid);
// Returns a pidfd of the process at the other end of a Unix socket. With SO_PEERPIDFD (Linux 6.5) it is
// certainly that process, even in a pid namespace that the agent does not see. Otherwise like
// watch_process(pid).
UniqueFd watch_peer(int socket, pid_t pid);

// A pidfd with several owners. A pidfd identifies its process in every pid namespace, which a pid does not.
// Agents in two containers of a pod pass it on.
using SharedProcess = std::shared_ptr<const UniqueFd>;
// Returns a null pointer if `pidfd` is empty.
SharedProcess share_process(UniqueFd pidfd);
// REQUIRES: `pidfd` is a pidfd
bool has_ended(int pidfd);
bool is_pidfd(int fd);
// Returns the pid in the agent's pid namespace; 0 if the process is in another one, or has ended.
pid_t pid_of(int pidfd);

}  // namespace verbena::agent
