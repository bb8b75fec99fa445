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

// Starts a helper if there is none or the helper with port `gone` is gone. Also starts one if the program's
// user ID has changed, because a helper does not serve another user. Returns the helper's port; 0 if none can
// be started. Keeps errno.
uint32_t start_netlink_helper(uint32_t gone);

}  // namespace verbena::sysfs
