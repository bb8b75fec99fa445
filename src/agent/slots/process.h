// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include <sys/types.h>

#include "base/unique_fd.h"

namespace verbena::agent {

// Returns the start time of the process in clock ticks since boot, or 0 if unknown. Pid and start time
// together identify a process: pids are reused, but not within one clock tick. Readers in different time
// namespaces get the same value, within one tick.
uint64_t start_time_of(pid_t pid);
// Returns whether two start times can be of the same process: they differ by at most one tick.
bool is_same_start(uint64_t one, uint64_t other);
// Returns a pidfd, which becomes readable when the process ends. Returns an empty descriptor if the process
// has ended, or the agent's pid namespace does not contain it.
UniqueFd watch_process(pid_t pid);
// Returns a pidfd of the process at the other end of a Unix socket. With SO_PEERPIDFD (Linux 6.5), works even
// if the process is in a pid namespace that the agent does not see. Without, the same as watch_process(pid),
// and `pid` may have been reused.
UniqueFd watch_peer(int socket, pid_t pid);

// A pidfd with several owners. Unlike a pid, a pidfd identifies its process in every pid namespace. So an
// agent in one container of a pod can take over pidfds from an agent in another.
using SharedProcess = std::shared_ptr<const UniqueFd>;
// Makes a pidfd one that several owners can share. Returns a null pointer if `pidfd` is empty.
SharedProcess share_process(UniqueFd pidfd);
// Returns whether the process has ended. REQUIRES: `pidfd` is a pidfd
bool has_ended(int pidfd);
// Returns whether a descriptor is a pidfd. Descriptors in a takeover state are checked so.
bool is_pidfd(int fd);
// Returns the process's pid in the agent's pid namespace, or 0 if it has ended or is not visible there.
pid_t pid_of(int pidfd);

// Returns whether a process is stopped by a signal or a debugger, or frozen with its control group, as in a
// paused container. Reads /proc and /sys/fs/cgroup. Returns false if these cannot be read, and for pid 0.
bool is_stopped(pid_t pid);

}  // namespace verbena::agent
