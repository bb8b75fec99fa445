// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include "agent/slot_table.h"

namespace verbena::agent {

// Who knows another's QPNs can disturb it: users see their own processes, root and our own user see all.
inline bool sees_all(uid_t user) {
  return user == 0 || user == ::geteuid();
}
inline bool sees_all(const Borrower& client) {
  return sees_all(client.uid);
}
inline bool sees(const Borrower& client, uid_t user) {
  return sees_all(client) || client.uid == user;
}

}  // namespace verbena::agent
