// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <set>

#include <sys/types.h>

#include "base/quota.h"
#include "base/result.h"
#include "base/time.h"
#include "base/unique_fd.h"

namespace verbena::agent {

// Counts the multicast sockets that users' programs have from the agent. All sockets of a multicast group and
// device form one SO_REUSEPORT group. The kernel allows 32,768 sockets in such a group, and each of them gets
// each datagram. So the users share the number (base/quota.h).
//
// A socket counts until all its descriptors are closed, in any process. The agent keeps no descriptor,
// because the socket would then stay open. It adds the socket to an epoll instance, without events. The
// kernel removes the socket from there at the last close, and /proc/self/fdinfo lists the remaining sockets
// with their users.
//
// For the agent's thread.
class GroupSockets {
 public:
  static constexpr Quota::Size kSockets = Quota::Size::of(4096);
  // The minimum time between two readings of the list of open sockets (/proc/self/fdinfo). A socket that has
  // been closed counts until the next reading.
  static constexpr Duration kLookInterval = std::chrono::seconds(1);

  explicit GroupSockets(uid_t own, Quota::Size sockets = kSockets) : quota_(sockets, own) {}

  // Counts a socket that the user will get. Returns ENOSPC if the user's programs have too many sockets, or
  // the kernel's error if epoll refuses the socket.
  Result<void> add(uid_t user, int socket, TimePoint now);
  // Returns the number of sockets that count for the user.
  size_t of(uid_t user) const { return quota_.of(user); }

 private:
  void look(TimePoint now);

  Quota quota_;
  std::set<uid_t> users_;  // users that have sockets
  UniqueFd epoll_;
  TimePoint next_look_{};
};

}  // namespace verbena::agent
