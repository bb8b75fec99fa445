// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

namespace verbena::paths {

// Users as agents tell them apart, also in a user namespace (user_namespaces(7)), where a number that the
// kernel shows is not the user's own: `unshare -Ur` shows the user as 0, and root, like every user who has no
// number there, as 65534. Async-signal-safe, and without the C++ library's run-time part.

// The number by which the agent of this process's user has its directory and its name. It is the effective
// user ID, except for a user who is shown as root in a user namespace but does not own /run: the agent is the
// one that this user has outside. Root of a container with a /run of its own is root.
uid_t own_user();

// How the kernel shows a user of this number to us: in stat(2) and SO_PEERCRED. -1: not at all, since others
// are shown the same, so nothing that has this number may be trusted.
uid_t shown_as(uid_t user);

// The kernel may show this number for several users, who cannot be told apart: it is the overflow user ID,
// and not all users have a number here. A user who has this very number (nobody of a container) is among
// them.
bool is_ambiguous(uid_t shown);

// A process that the kernel has told of: who listens, connects, or has sent a message.
struct PeerProcess {
  pid_t pid = 0;
  uid_t shown = 0;  // as the kernel shows its user to us
  int socket = -1;  // the connection to it; -1: it has sent a message
};

// Whether it is a process of our own user. Among users who are shown the same only the kernel can tell, as
// below.
bool is_own_users(const PeerProcess& peer);

// Whether `shown` is the number of one user. Where it may be several users', the process must be in our user
// namespace, where none but its users and its maker can be. The kernel lets us look there only if we might
// debug the process (ptrace(2)), and so not at one that has begun a set-user-ID program. The pid alone proves
// nothing: who listens may have ended, with its socket left to a child and its pid to another. A pidfd shows
// that it lives (SO_PEERPIDFD, Linux 6.5; before, this is left open).
bool has_number(const PeerProcess& peer);

// A directory of root's, where root has no number of its own. It is known by its place: it and all
// directories above it belong to root or to somebody without a number, and others cannot write to them.
// A user who could put another one there could replace the system's libraries as well.
bool is_unmapped_roots(const char* directory);

}  // namespace verbena::paths
