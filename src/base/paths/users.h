// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

namespace verbena::paths {

// User IDs as agents compare them. They also work in a user namespace (user_namespaces(7)), where the kernel
// shows other numbers: `unshare -Ur` shows the user as 0, and root, like every user without a mapping, as
// 65534. Async-signal-safe, and without the C++ run-time library.

// The user ID that names the agent of this process's user and its directory. It is the effective user ID,
// except for a user shown as root in a user namespace who does not own /run. That user's agent is the one
// outside the namespace. Root of a container that has its own /run is root.
uid_t own_user();

// The number by which the kernel shows `user` to us in stat(2) and SO_PEERCRED. -1 if it shows others by the
// same number: then nothing with this number may be trusted.
uid_t shown_as(uid_t user);

// Whether the kernel may show several users by this number: it is the overflow user ID, and not all users
// have a mapping here. A user whose real ID is this number (nobody of a container) is one of them.
bool is_ambiguous(uid_t shown);

// A process that the kernel has identified: it listens, connects, or has sent a message.
struct PeerProcess {
  pid_t pid = 0;
  uid_t shown = 0;  // its user, as the kernel shows it to us
  int socket = -1;  // the connection to it; -1: it sent a message
};

// Whether the process belongs to our own user. If several users are shown by that number, decided as in
// has_number().
bool is_own_users(const PeerProcess& peer);

// Whether `shown` identifies one user. If several users may be shown so, the process must be in our user
// namespace, which only its users and its creator can enter. The kernel lets us check that only if we may
// debug the process (ptrace(2)), so not for one that runs a set-user-ID program. The pid alone proves
// nothing: the listener may have exited, with its socket left to a child and its pid reused. A pidfd proves
// that it lives (SO_PEERPIDFD, Linux 6.5; older kernels cannot tell).
bool has_number(const PeerProcess& peer);

// Whether the directory is root's where root has no mapping. Recognized by its place: it and all its parents
// belong to root or an unmapped user, and others cannot write to them. A user who could create such a
// directory could replace the system's libraries as well.
bool is_unmapped_roots(const char* directory);

}  // namespace verbena::paths
