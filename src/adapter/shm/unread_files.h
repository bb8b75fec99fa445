// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>

#include <sys/types.h>

#include "base/foreign_socket.h"
#include "base/time.h"

namespace verbena::engine {

// Limits the descriptors that processes of other users leave unread in the sockets of channels. The kernel
// lets a user have RLIMIT_NOFILE unread descriptors in all its sockets. Beyond that no program of this user
// can send any: it fails with ETOOMANYREFS. The other process may leave messages unread for as long as it
// likes, also after this process has closed its end.
//
// So this process keeps its end of an ended channel while messages are unread, because it can ask only there
// (SIOCOUTQ). A user with kMaxUnreadOfUser channels whose descriptors are unread gets no further ones, nor
// does any other user while there are kMaxUnread. Their processes are reached by the wire then. Channels that
// have not ended count from kUnreadAfter on, so that any number of handshakes may be under way.

inline constexpr size_t kMaxUnreadOfUser = 4;
inline constexpr size_t kMaxUnread = 32;
inline constexpr Duration kUnreadAfter = std::chrono::seconds(1);

// Returns whether a process of the user may get a message with a descriptor. Thread-safe. Never blocks.
bool may_send_file(uid_t user, TimePoint now = MonotonicClock::now());

// The descriptors that a channel's socket has sent to a process of another user. REQUIRES: hang_up() is
// called before the socket is closed otherwise. One thread at a time. Nothing here blocks.
class SentFiles {
 public:
  SentFiles() = default;
  ~SentFiles() { forget(); }
  SentFiles(const SentFiles&) = delete;
  SentFiles& operator=(const SentFiles&) = delete;

  // A descriptor is about to be sent. Does nothing for this process's own user.
  void send(const ForeignSocket& socket, uid_t user, TimePoint now = MonotonicClock::now());
  // Like socket.hang_up_later(user), but keeps a copy while messages are unread.
  void hang_up(ForeignSocket& socket, uid_t user);

 private:
  bool forget();

  bool is_listed_ = false;
};

}  // namespace verbena::engine
