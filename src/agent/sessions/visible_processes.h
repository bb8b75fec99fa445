// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include <sys/types.h>
#include <unistd.h>

#include "agent/slots/slot_table.h"

namespace verbena::agent {

// Returns whether the user may see all processes: root and the agent's own user may. Others see only their
// own processes, because a process that knows a QPN can interfere with the QP's owner.
inline bool sees_all(uid_t user) {
  return user == 0 || user == ::geteuid();
}
inline bool sees_all(const Lessee& client) {
  return sees_all(client.uid);
}
// Returns the only user whose processes the client may see, or nullopt if it may see those of all users.
inline std::optional<uid_t> seen_by(const Lessee& client) {
  return sees_all(client) ? std::nullopt : std::optional<uid_t>(client.uid);
}
inline bool sees(const Lessee& client, uid_t user) {
  return sees_all(client) || client.uid == user;
}

}  // namespace verbena::agent
