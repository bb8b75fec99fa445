// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include <sys/types.h>

#include "base/unique_fd.h"

namespace verbena::agent {

// When the process started, in clock ticks since boot: with its pid it names a process for good. 0: unknown.
// The same, but for one tick, for readers of all time namespaces.
uint64_t start_time_of(pid_t pid);
bool is_same_start(uint64_t one, uint64_t other);
// A descriptor that becomes readable when the process ends; empty if it has, or belongs to a pid namespace
// that we do not see.
UniqueFd watch_process(pid_t pid);
// The same for the process at the other end of a Unix socket; certain to be that one where the kernel has
// SO_PEERPIDFD (Linux 6.5), and then also there where its pid namespace is one that we do not see.
UniqueFd watch_peer(int socket, pid_t pid);

// A pidfd that several have. It names its process in every pid namespace, as a pid does not: agents of two
// containers of a pod hand it on.
using SharedProcess = std::shared_ptr<const UniqueFd>;
// Empty if `pidfd` is.
SharedProcess share_process(UniqueFd pidfd);
// REQUIRES: `pidfd` is one
bool has_ended(int pidfd);
bool is_pidfd(int fd);
// Its pid in our pid namespace; 0 if it is in another, or has ended.
pid_t pid_of(int pidfd);

}  // namespace verbena::agent
