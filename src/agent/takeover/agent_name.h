// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace verbena::agent {

// The addresses at which clients find an agent. They also make it the only agent of its user in a network
// namespace. The first address is a socket file in the user's state directory, where no other user can create
// one, and a lock beside it that no other user can take. The second is an abstract Unix socket name, which
// any user can take. It is for clients that do not see the directory or do not know of the file. Without such
// a directory, the abstract name is the only address.
class AgentName {
 public:
  // Takes the addresses. EADDRINUSE: this user has an agent, or may have one; or there is no directory and
  // another process has the abstract name. Waits up to 500 ms for the owner of the abstract name to identify
  // itself, and up to 10 s for that of the lock to listen or end. `passed`: a socket with the abstract name
  // on which a service manager already listens.
  static Result<AgentName> take(UniqueFd passed = {});

  AgentName(AgentName&&) = default;
  AgentName& operator=(AgentName&&) = delete;
  ~AgentName() { give_up(); }

  // Returns at least one socket. The sockets are bound but do not listen, except `passed`.
  std::vector<UniqueFd> take_sockets() { return std::exchange(sockets_, {}); }
  // Releases the addresses for the next agent.
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
