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

// A socket that is bound to a UDP port, as /proc/net/udp lists it.
struct PortHolder {
  uint32_t uid = 0;
  uint64_t inode = 0;
};
std::vector<PortHolder> holders_of_port(uint16_t port);
// Returns the pid of a process that has the socket open. Empty if the agent may not look into the process, or
// the socket is the kernel's own. Reads each descriptor of each process while may_go_on() is true.
std::string process_with_socket(
    uint64_t inode, const std::function<bool()>& may_go_on = [] { return true; });
// Returns "iperf3 (pid 4711) of user 1000", or "a program of user 1000" if the process is not visible. The
// text goes to logs and terminals: it has no control characters, though a process chooses its name.
std::string describe_holder(const PortHolder& holder, const std::function<bool()>& may_go_on);

// Finds out who has a UDP port, on a thread of its own: users decide how many sockets and descriptors there
// are to look at. For one thread, which never waits for longer than it says.
class PortHolderSearch {
 public:
  // Answers describe_holder(); empty: nobody is found.
  using Search = std::function<std::string(uint16_t port, const std::function<bool()>& may_go_on)>;
  explicit PortHolderSearch(Search search = look);
  // Ends a search that goes on.
  ~PortHolderSearch();
  PortHolderSearch(const PortHolderSearch&) = delete;
  PortHolderSearch& operator=(const PortHolderSearch&) = delete;

  // Begins, unless a search goes on.
  void begin(uint16_t port);
  // The result of a search that has ended since the last call. Waits so long at most for one that goes on.
  std::optional<std::string> take(Duration patience);

  static std::string look(uint16_t port, const std::function<bool()>& may_go_on);

 private:
  const Search search_;
  std::thread thread_;
  std::atomic<bool> ends_ = false;
  std::mutex mutex_;
  std::condition_variable is_done_;
  bool goes_on_ = false;              // under the mutex
  std::optional<std::string> found_;  // likewise
};

}  // namespace verbena::agent
