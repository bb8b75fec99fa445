// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

namespace verbena::facade {

// The process that answers this program's sockets of NETLINK_RDMA: verbena-rdma-netlink, which is beside this
// library. It ends with the program. Any thread may call these; a signal handler, too.

extern constinit std::atomic<uint32_t> netlink_helper;

// The port of the helper's socket of NETLINK_USERSOCK; 0: there is no helper.
inline uint32_t netlink_helper_port() {
  return netlink_helper.load(std::memory_order_acquire);
}

// Answers the helper's port, at which its socket is now; 0: none can be started here. It starts one if there
// is none, and if the former is gone (that of port `gone` is), is the parent's of a child of fork(), or would
// not answer, as the program has become another user. Any user can take a port that is free, so each question
// begins here. errno stays as it is.
uint32_t start_netlink_helper(uint32_t gone);

}  // namespace verbena::facade
