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

// Counts the multicast sockets that users' programs have from the agent. All sockets of a group and device
// are one group of SO_REUSEPORT, of which the kernel allows 32,768 sockets, and each of them gets each
// datagram. So users get shares (base/quota.h).
//
// A socket counts until all its descriptors are closed, in any process. The agent keeps none, since it would
// not see that. It puts the socket into an epoll instance, for no event: the kernel takes it out at the last
// close, and /proc/self/fdinfo lists those that are left, with their users.
//
// For the agent's thread.
class GroupSockets {
 public:
  static constexpr Quota::Size kSockets = Quota::Size::of(4096);
  // The minimum time between two looks at what is left.
  static constexpr Duration kLookInterval = std::chrono::seconds(1);

  explicit GroupSockets(uid_t own, Quota::Size sockets = kSockets) : quota_(sockets, own) {}

  // Counts a socket that the user will get. ENOSPC if the user's programs have too many.
  Result<void> add(uid_t user, int socket, TimePoint now);
  // Returns the number of sockets that count for the user.
  size_t of(uid_t user) const { return quota_.of(user); }

 private:
  void look(TimePoint now);

  Quota quota_;
  std::set<uid_t> users_;  // who have sockets
  UniqueFd epoll_;
  TimePoint next_look_{};
};

}  // namespace verbena::agent
