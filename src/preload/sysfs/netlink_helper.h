// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

namespace verbena::sysfs {

// The helper process that responds on this program's NETLINK_RDMA sockets: verbena-rdma-netlink, installed
// beside this library. The helper ends with the program. Functions are thread-safe and async-signal-safe.

extern constinit std::atomic<uint32_t> netlink_helper;

// Returns the port of the helper's NETLINK_USERSOCK socket; 0 if there is no helper.
inline uint32_t netlink_helper_port() {
  return netlink_helper.load(std::memory_order_acquire);
}

// Returns the port of this process's helper, whose socket is there now; 0 if none can be started. Starts a
// helper if there is none, the one with port `gone` has ended, the helper is that of a fork's parent, or the
// user ID has changed, because a helper serves one user. Any user can bind a free port, so each question
// begins here. Keeps errno.
uint32_t start_netlink_helper(uint32_t gone);

}  // namespace verbena::sysfs
