// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/time.h"

namespace verbena::agent {

// The owner and inode of a socket that is bound to a UDP port, from /proc/net/udp or udp6.
struct PortHolder {
  uint32_t uid = 0;
  uint64_t inode = 0;
};
std::vector<PortHolder> holders_of_port(uint16_t port);
// Returns the pid of a process that has the socket open, as text. Returns an empty string if no such process
// is found: the agent may lack permission, or the socket is the kernel's own. Reads the descriptors of all
// processes, and gives up when may_go_on() returns false.
std::string process_with_socket(
    uint64_t inode, const std::function<bool()>& may_go_on = [] { return true; });
// Returns "iperf3 (pid 4711) of user 1000", or "a program of user 1000" if the process is not visible. The
// text goes to logs and terminals: it has no control characters, though a process chooses its name.
std::string describe_holder(const PortHolder& holder, const std::function<bool()>& may_go_on);

// Finds out which program has a UDP port. Searches on a thread of its own, because the search may take long:
// users decide how many sockets and descriptors there are. All methods are called on one other thread, which
// waits only in take() and the destructor.
class PortHolderSearch {
 public:
  // Returns describe_holder() of the port's first holder, or an empty string if there is none.
  using Search = std::function<std::string(uint16_t port, const std::function<bool()>& may_go_on)>;
  explicit PortHolderSearch(Search search = look);
  // Cancels a running search, and waits for its thread.
  ~PortHolderSearch();
  PortHolderSearch(const PortHolderSearch&) = delete;
  PortHolderSearch& operator=(const PortHolderSearch&) = delete;

  // Begins a search, unless one is running.
  void begin(uint16_t port);
  // Returns the result of a search that has ended since the last call, or nullopt if there is none. Waits up
  // to `patience` for a running search.
  std::optional<std::string> take(Duration patience);

  static std::string look(uint16_t port, const std::function<bool()>& may_go_on);

 private:
  const Search search_;
  std::thread thread_;
  std::atomic<bool> ends_ = false;
  std::mutex mutex_;
  std::condition_variable is_done_;
  bool goes_on_ = false;              // under the mutex
  std::optional<std::string> found_;  // under the mutex
};

}  // namespace verbena::agent
