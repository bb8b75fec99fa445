// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

namespace verbena::paths {

// User IDs as agents compare them. They also work in a user namespace (user_namespaces(7)), where the kernel
// shows other numbers: `unshare -Ur` shows the user as 0, and root, like every user without a mapping, as
// 65534. Async-signal-safe, and without the C++ run-time library.

// Returns the user ID that names the agent of this process's user and the agent's directory. That is the
// effective user ID, with one exception: a user shown as root in a user namespace whose /run is not root's.
// This user's agent runs outside the namespace, so own_user() returns the user's ID outside. Root of a
// container that has its own /run is root.
uid_t own_user();

// Returns the number by which the kernel shows `user` to us in stat(2) and SO_PEERCRED. Returns -1 if the
// kernel may show other users by the same number, so that nothing with that number may be trusted.
uid_t shown_as(uid_t user);

// Whether the kernel may show several users by this number. That is so for the overflow user ID, unless all
// users have a mapping in this user namespace: the kernel shows every unmapped user by it. A mapped user may
// have the same number (nobody of a container).
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

// Whether `peer.shown` identifies one user. True if the number is not ambiguous (is_ambiguous()). If it is
// ambiguous, true only if the process is in our user namespace, which only its users and its creator can
// enter. The kernel shows a process's namespace only if we may debug the process (ptrace(2)), so not if it
// runs a set-user-ID program. The pid alone proves nothing: the listener may have exited, with its socket
// left to a child and its pid reused. A pidfd of the connection proves that the process lives (SO_PEERPIDFD,
// Linux 6.5). With older kernels, or without a connection, has_number() assumes that the process lives.
bool has_number(const PeerProcess& peer);

// Whether the directory probably belongs to the host's root, in a user namespace that does not map the host's
// root. True if an unmapped user owns the directory, the namespace's root or an unmapped user owns each
// parent, and nobody else can write to any of these. It is safe to trust such a directory: an unmapped user
// other than root who could create it could replace the system's libraries as well.
bool is_unmapped_roots(const char* directory);

}  // namespace verbena::paths
