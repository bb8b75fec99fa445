// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "preload/netlink/attributes.h"
#include "preload/netlink/devices.h"

namespace verbena::rdma_netlink {

// What the kernel's RDMA subsystem answers to programs on sockets of NETLINK_RDMA, said of Verbena's devices:
// messages come in, messages go out. Pure but for what `devices` does. Not thread-safe.
//
// It knows the commands of RDMA_NL_NLDEV, which are iproute2's `rdma`'s. Those that Verbena has nothing for
// are answered with EOPNOTSUPP, and what is no command with EINVAL, as the kernel does.
class Service {
 public:
  explicit Service(Devices& devices) : devices_(devices) {}

  // A datagram with requests, and what is to be sent to the socket `port` that it came from, in that order.
  // What is no request is passed over in silence, as it is by the kernel.
  std::vector<Bytes> answer(std::span<const std::byte> datagram, uint32_t port);

 private:
  Devices& devices_;
};

}  // namespace verbena::rdma_netlink
