// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace verbena::agent {

// Holds the addresses at which clients find an agent. As long as an agent holds them, no other agent of its
// user can start in the network namespace. The first address is a socket file in the user's state directory,
// where no other user can create files, with a lock file beside it. The second is an abstract Unix socket
// name, for clients that do not see the directory or are too old for the socket file. Any user can take the
// abstract name. If no state directory can be created, the abstract name is the only address.
class AgentName {
 public:
  // Takes the addresses. Waits up to 10 s while another process holds the lock, until that process listens or
  // ends. Waits up to 500 ms for the owner of the abstract name to identify itself. Fails with EADDRINUSE if
  // an agent of this user listens, or if the lock stays taken. If there is no directory, also fails with
  // EADDRINUSE if another process has the abstract name. Fails with the kernel's error if the socket file
  // cannot be created. `passed` is a socket with the abstract name on which a service manager already
  // listens, or empty.
  static Result<AgentName> take(UniqueFd passed = {});

  AgentName(AgentName&&) = default;
  AgentName& operator=(AgentName&&) = delete;
  ~AgentName() { give_up(); }

  // Returns the addresses' sockets, at least one. They are bound but do not listen yet, except `passed`.
  std::vector<UniqueFd> take_sockets() { return std::exchange(sockets_, {}); }
  // Releases the addresses, so that the next agent can take them. Does not close sockets that take_sockets()
  // has returned.
  void give_up();

  // Returns the lock file of a state directory. Only the process that has locked the file may start an agent
  // there.
  static std::string lock_file_in(const std::string& directory) { return directory + "/agent.lock"; }

 private:
  AgentName() = default;

  Result<void> take_directory();
  Result<void> take_abstract_name(UniqueFd passed);
  Result<void> make_socket_file();

  Result<void> lock();
  bool holds_lock() const;

  std::string file_;  // empty: none
  std::string lock_file_;
  UniqueFd lock_;
  std::vector<UniqueFd> sockets_;
};

}  // namespace verbena::agent
