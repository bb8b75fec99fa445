// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

namespace verbena::sysfs {

// The helper process that responds on this program's NETLINK_RDMA sockets: verbena-rdma-netlink, installed
// beside this library. The helper ends with the program. Functions are thread-safe and async-signal-safe.

extern constinit std::atomic<uint32_t> netlink_helper;  // use netlink_helper_port()

// Returns the port of the last helper's NETLINK_USERSOCK socket; 0 if this process never had a helper. That
// helper may have ended.
inline uint32_t netlink_helper_port() {
  return netlink_helper.load(std::memory_order_acquire);
}

// Returns the port of a helper that is running for this process; 0 if none can be started. Starts another
// helper if there is none, or if its port is `gone`: the caller saw that this helper has ended. A child of
// fork(), and a program that has changed its user ID, also get another helper. Checks that the helper's
// socket still has the port, because any user can bind a free one. So call this before each request.
// Preserves errno.
uint32_t start_netlink_helper(uint32_t gone);

}  // namespace verbena::sysfs
