// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <sys/types.h>

#include "base/foreign_socket.h"

namespace verbena::engine {

// Limits the descriptors that processes of other users leave unread in the sockets of channels that have
// ended. The kernel lets a user have RLIMIT_NOFILE unread descriptors in all its sockets. Beyond that no
// program of this user can send any: it fails with ETOOMANYREFS. The other process may leave messages unread
// for as long as it likes, also after this process has closed its end.
//
// So this process keeps its end while messages are unread, because it can ask only there (SIOCOUTQ). A user
// with kMaxUnreadOfUser such sockets gets no further channels, nor does any other user while there are
// kMaxUnread. Their processes are reached by the wire then.
//
// The functions are thread-safe. Nothing here blocks.

inline constexpr size_t kMaxUnreadOfUser = 4;
inline constexpr size_t kMaxUnread = 32;

// Returns whether a process of the user may get a message with a descriptor.
bool may_send_file(uid_t user);
// Hangs up on a socket by which a descriptor was sent to a process of the user. Like
// ForeignSocket::hang_up_later(), but keeps a copy while messages are unread.
void hang_up_unread(ForeignSocket& socket, uid_t user);

}  // namespace verbena::engine
