// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace verbena::agent {

// What clients find an agent by, and what makes it the only one of its user in a network namespace: a socket
// file in the user's state directory, where nobody else can put one, and a lock beside it that nobody else
// can take; and the abstract name, which anybody can take, for clients that do not see the directory or do
// not know of the file. Where there is no such directory the abstract name is all.
class AgentName {
 public:
  // EADDRINUSE: there is an agent of this user, or one may be; or there is no directory, and somebody else
  // has the abstract name. Waits a moment for the one that has it to show who it is.
  // `passed`: the socket of the abstract name, where a service manager has begun to listen.
  static Result<AgentName> take(UniqueFd passed = {});

  AgentName(AgentName&&) = default;
  AgentName& operator=(AgentName&&) = delete;
  ~AgentName() { give_up(); }

  // Bound, and not listening yet, except what was passed; at least one.
  std::vector<UniqueFd> take_sockets() { return std::exchange(sockets_, {}); }
  // The next agent may have it.
  void give_up();

  // Who has locked this file in a state directory is the only one that may begin there.
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
