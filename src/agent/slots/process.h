// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <sys/types.h>

#include "base/pidfd.h"
#include "base/time.h"
#include "base/unique_fd.h"

namespace verbena::agent {

class ForeignCloser;  // agent/sessions/client_files.h

// Returns the start time of the process in clock ticks since boot, or 0 if unknown. Pid and start time
// together identify a process: pids are reused, but not within one clock tick. Readers in different time
// namespaces get the same value, within one tick.
//
// Not for the agent's main thread, but for a thread of the process's user (ForeignCloser). A read of
// /proc/PID/stat takes a reference to the process's memory. If the process ends meanwhile, the reader frees
// the memory and closes the files that were mapped there. That takes as long as the user likes.
uint64_t start_time_of(pid_t pid);
// Returns whether two start times can be of the same process: they differ by at most one tick.
bool is_same_start(uint64_t one, uint64_t other);
// Returns a pidfd, which becomes readable when the process ends. Returns an empty descriptor if the process
// has ended, or the agent's pid namespace does not contain it.
UniqueFd watch_process(pid_t pid);
// Returns a pidfd of the process at the other end of a Unix socket. With SO_PEERPIDFD (Linux 6.5), this works
// even if the process is in a pid namespace that the agent does not see. On older kernels, returns
// watch_process(pid), and `pid` may have been reused. Returns an empty descriptor and sets errno on failure,
// for example if the process has ended.
UniqueFd watch_peer(int socket, pid_t pid);

// A pidfd with several owners. Unlike a pid, a pidfd identifies its process in every pid namespace. So an
// agent in one container of a pod can take over pidfds from an agent in another.
using SharedProcess = std::shared_ptr<const UniqueFd>;
// Returns a pidfd that several owners can share, or a null pointer if `pidfd` is empty. Closing a pidfd may
// take long, because close(2) may wait for file locks. All pidfds of a process are one file for these locks,
// so any process that has one of them can cause the wait. Therefore `closer` closes the pidfd on its thread
// for `user`, the process's user. If `closer` is null, the last owner closes it.
SharedProcess share_process(UniqueFd pidfd, ForeignCloser* closer = nullptr, uid_t user = 0);
// Returns whether the process has ended. REQUIRES: `pidfd` is a pidfd
bool has_ended(int pidfd);
// Returns whether a descriptor is a pidfd. Used for descriptors in a takeover state, which may be forged.
bool is_pidfd(int fd);
// Returns a number that no other process has had since boot, or 0 before Linux 6.9. REQUIRES: `pidfd` is a
// pidfd
uint64_t unique_number_of(int pidfd);

// Returns whether a process is stopped by a signal or a debugger, or frozen with its control group, as in a
// paused container. Reads /proc and /sys/fs/cgroup. Returns false if these cannot be read, and for pid 0. Not
// for the agent's main thread, like start_time_of().
bool is_stopped(pid_t pid);

// The owner and inode of a socket that is bound to a UDP port, from /proc/net/udp or udp6.
struct PortHolder {
  uint32_t uid = 0;
  uint64_t inode = 0;
};
std::vector<PortHolder> holders_of_port(uint16_t port);
// Returns the pid, as text, of a process that has the socket open. Returns an empty string if no such process
// is found: the agent may lack permission, or the socket is the kernel's own. Looks through the descriptors
// of all processes. Gives up when may_go_on() returns false, or after 65,536 descriptors.
std::string process_with_socket(
    uint64_t inode, const std::function<bool()>& may_go_on = [] { return true; });
// Returns "iperf3 (pid 4711) of user 1000", or "a program of user 1000" if the process is not visible. The
// text goes to logs and terminals: it has no control characters, though a process chooses its name.
std::string describe_holder(const PortHolder& holder, const std::function<bool()>& may_go_on);

// Finds out which program has a UDP port. Searches on a thread of its own, because a search may take long:
// users decide how many sockets and descriptors there are. All methods are called on one other thread, which
// waits only in take() and the destructor.
class PortHolderSearch {
 public:
  struct Found {
    std::string holder;  // describe_holder() of the port's first holder, or empty if there is none
    bool all_ours;       // there are holders, and all belong to this process's user
  };
  using Search = std::function<Found(uint16_t port, const std::function<bool()>& may_go_on)>;
  // The destructor cancels a running search, and waits for its thread.
  explicit PortHolderSearch(Search search = look) : search_(std::move(search)) {}

  // Begins a search, unless one is running.
  void begin(uint16_t port);
  // Returns the result of a search that has ended since the last call, or nullopt if there is none. Waits up
  // to `patience` for a running search.
  std::optional<Found> take(Duration patience);

  static Found look(uint16_t port, const std::function<bool()>& may_go_on);

 private:
  const Search search_;
  std::mutex mutex_;
  std::condition_variable is_done_;
  bool goes_on_ = false;        // under the mutex
  std::optional<Found> found_;  // under the mutex
  std::jthread thread_;
};

}  // namespace verbena::agent
