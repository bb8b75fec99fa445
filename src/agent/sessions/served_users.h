// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include <sys/types.h>
#include <unistd.h>

#include "base/paths/users.h"

namespace verbena::agent {

// Whom an agent serves, and whom of them with sockets of UDP port 4791. Who has one of these rules over all
// of them, so nobody has who must not harm the others: root, the agent's own user, or the one user for whom
// root's agent is there.
class ServedUsers {
 public:
  // `only`: root's agent serves root and nobody else but this user. It has to be said from the start: a
  // socket that was lent cannot be taken back when a second user comes.
  // `own`: the agent's user, as the kernel shows it; `is_roots`: it is root's agent, which serves everybody.
  explicit ServedUsers(std::optional<uid_t> only = std::nullopt, uid_t own = ::geteuid(),
                       bool is_roots = paths::own_user() == 0)
      : own_(own), is_roots_(is_roots), only_(only) {}

  bool serves(uid_t user) const {
    return user == 0 || user == own_ || (is_roots_ && (!only_ || user == *only_));
  }
  bool lends_sockets_to(uid_t user) const { return user == 0 || user == own_ || user == only_; }

  std::optional<uid_t> only() const { return only_; }
  // What a former agent was told holds, as long as we are told nothing else.
  void adopt(uid_t only) {
    if (!only_) only_ = only;
  }

 private:
  uid_t own_;
  bool is_roots_;
  std::optional<uid_t> only_;
};

}  // namespace verbena::agent
