// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include <sys/types.h>
#include <unistd.h>

#include "base/paths/users.h"

namespace verbena::agent {

// Decides which users an agent serves, and which of them get sockets of UDP port 4791. A process with one of
// these sockets has control of the whole port. So only users that would not harm others get one: root, the
// agent's own user, or the one user that root's agent serves.
class ServedUsers {
 public:
  // `only`: root's agent serves only root and this user. It must be set at the start, because a leased socket
  // cannot be taken back when a second user comes. `own` is the agent's user as the kernel shows it.
  // `is_roots`: the agent is root's, which serves all users if `only` is nullopt.
  explicit ServedUsers(std::optional<uid_t> only = std::nullopt, uid_t own = ::geteuid(),
                       bool is_roots = paths::own_user() == 0)
      : own_(own), is_roots_(is_roots), only_(only) {}

  bool serves(uid_t user) const {
    return user == 0 || user == own_ || (is_roots_ && (!only_ || user == *only_));
  }
  bool leases_sockets_to(uid_t user) const { return user == 0 || user == own_ || user == only_; }

  std::optional<uid_t> only() const { return only_; }
  // Adopts `only` from a former agent, unless this agent has its own setting.
  void adopt(uid_t only) {
    if (!only_) only_ = only;
  }

 private:
  uid_t own_;
  bool is_roots_;
  std::optional<uid_t> only_;
};

// Counts the programs that were refused because of their protocol version, and describes the last one.
struct RefusedPrograms {
  uint32_t count = 0;
  pid_t last_pid = 0;
  uint16_t last_version = 0;
};

// Program names that an agent's two helper processes send in their hello. An agent may end while it has no
// other clients than these.
inline constexpr const char* kStandbyName = "verbena-keeper";  // commands/agent/standby.h
inline constexpr const char* kMirrorName = "verbena-mirror";   // commands/agent/device_mirror.h

}  // namespace verbena::agent
