// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include <sys/types.h>
#include <unistd.h>

#include "agent/slots/slot_table.h"

namespace verbena::agent {

// Who knows another's QPNs can disturb it: users see their own processes, root and our own user see all.
inline bool sees_all(uid_t user) {
  return user == 0 || user == ::geteuid();
}
inline bool sees_all(const Borrower& client) {
  return sees_all(client.uid);
}
// Whose processes the client sees. Nothing: everybody's.
inline std::optional<uid_t> seen_by(const Borrower& client) {
  return sees_all(client) ? std::nullopt : std::optional<uid_t>(client.uid);
}
inline bool sees(const Borrower& client, uid_t user) {
  return sees_all(client) || client.uid == user;
}

}  // namespace verbena::agent
