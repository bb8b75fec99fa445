// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

namespace verbena::paths {

// User IDs as agents compare them. They also work in a user namespace (user_namespaces(7)), where the kernel
// shows other numbers: `unshare -Ur` shows the user as 0, and root, like every user without a mapping, as
// 65534. Async-signal-safe, and without the C++ run-time library.

// Returns the user ID that names the agent of this process's user and the agent's directory. That is the
// effective user ID, with one exception: a user shown as root in a user namespace whose /run is not root's.
// This user's agent is the one outside the namespace, so own_user() returns the ID there. Root of a container
// that has its own /run is root.
uid_t own_user();

// Returns the number by which the kernel shows `user` to us in stat(2) and SO_PEERCRED. Returns -1 if the
// kernel may show other users by the same number, so that nothing with that number may be trusted.
uid_t shown_as(uid_t user);

// Whether the kernel may show several users by this number. It does so by the overflow user ID if not all
// users have a mapping in this user namespace. The user whose real ID is this number (nobody of a container)
// is one of them.
bool is_ambiguous(uid_t shown);

// A process that the kernel has identified by SO_PEERCRED or SCM_CREDENTIALS: it listens, has connected, or
// has sent a message.
struct PeerProcess {
  pid_t pid = 0;
  uid_t shown = 0;  // the process's user ID, as the kernel shows it to us
  int socket = -1;  // the connection to the process; -1 if it sent a message
};

// Whether the process belongs to our own user: `shown` is our effective user ID, and has_number() is true.
bool is_own_users(const PeerProcess& peer);

// Whether `shown` identifies one user. If the number is ambiguous, the process must be in our user namespace,
// which only its users and its creator can enter. The kernel shows the namespace only if we may debug the
// process (ptrace(2)), so not for a process that runs a set-user-ID program. The pid alone proves nothing:
// the listener may have exited, with its socket left to a child and its pid reused. A pidfd of the connection
// proves that the process lives (SO_PEERPIDFD, Linux 6.5). With older kernels, or without a connection,
// has_number() assumes that the process lives.
bool has_number(const PeerProcess& peer);

// Whether the directory belongs to root, in a user namespace where root has no mapping. True if the directory
// belongs to an unmapped user, all its parents belong to root or an unmapped user, and others can write to
// none of these directories. A user who could create such a directory could replace the system's libraries as
// well.
bool is_unmapped_roots(const char* directory);

}  // namespace verbena::paths
