// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "preload/netlink/attributes.h"
#include "preload/netlink/devices.h"

namespace verbena::rdma_netlink {

// Responds to requests on NETLINK_RDMA sockets for Verbena's devices, in place of the kernel's RDMA
// subsystem. Performs no I/O except in `devices`. Not thread-safe.
//
// Supports the commands of RDMA_NL_NLDEV, which iproute2's `rdma` uses. Like the kernel, responds with
// EOPNOTSUPP to commands without meaning for Verbena, and with EINVAL to unknown commands.
class Service {
 public:
  explicit Service(Devices& devices) : devices_(devices) {}

  // Carries out the requests in `datagram`, which came from the socket with netlink port `port`. Returns the
  // datagrams to send back to that socket, in this order. Like the kernel, ignores messages that are not
  // requests.
  std::vector<Bytes> answer(std::span<const std::byte> datagram, uint32_t port);

 private:
  Devices& devices_;
};

}  // namespace verbena::rdma_netlink
