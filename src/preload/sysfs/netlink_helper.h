// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

namespace verbena::sysfs {

// The process that answers this program's sockets of NETLINK_RDMA: verbena-rdma-netlink, which is beside this
// library. It ends with the program. Any thread may call these; a signal handler, too.

extern constinit std::atomic<uint32_t> netlink_helper;

// The port of the helper's socket of NETLINK_USERSOCK; 0: there is no helper.
inline uint32_t netlink_helper_port() {
  return netlink_helper.load(std::memory_order_acquire);
}

// Starts one if there is none, if that of port `gone` is gone, or if the program has become another user,
// whom the former would not answer. Answers its port; 0: none can be started here. errno stays as it is.
uint32_t start_netlink_helper(uint32_t gone);

}  // namespace verbena::sysfs
