// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "adapter/net/port.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace verbena::net {

struct UdpPortOptions {
  uint32_t slot =
      0;  // QPNs of other slots are counted as kForeignSlot; the slot of our own packets' source QPs
  uint16_t port = roce::kUdpPort;
  uint32_t receive_buffer_bytes = 4u << 20;  // asked for; without CAP_NET_ADMIN capped at net.core.rmem_max
  uint32_t send_buffer_bytes = 4u << 20;
  // Packets to slot 0 and to multicast groups leave from `port`, by the receive socket. Only a process of the
  // user whose socket has the port can send from it, so that receivers know who has sent them. Packets to
  // other slots need source ports of their own (send_sockets.h).
  bool sends_from_port = false;
  // Where to count, for the life of the port; nullptr: in the port.
  PortCounters* counters = nullptr;
};

// A Port over UDP sockets: RoCEv2, exact, with segmentation offload both ways. docs/wire.md says how.
class UdpPort : public Port {
 public:
  // Takes a bound receive socket (AF_INET6 dual stack, or AF_INET), as the agent makes it: see
  // open_receive_socket().
  static Result<std::unique_ptr<UdpPort>> create(UniqueFd receive_socket, const UdpPortOptions& options);
};

// Makes and binds a receive socket: dual stack if the machine has IPv6, SO_REUSEPORT, UDP_GRO, packet
// information on. `port` 0 lets the kernel choose (tests). Errors: EADDRINUSE when somebody else has the
// port.
Result<UniqueFd> open_receive_socket(uint16_t port);

// Steers packets among the sockets of the port's SO_REUSEPORT group by the slot in the destination QPN; slots
// from `sockets` up go to slot 0. Attach again after each new socket. (SO_ATTACH_REUSEPORT_CBPF: no privilege
// needed.)
Result<void> attach_slot_steering(int any_socket_of_the_group, uint32_t sockets);

}  // namespace verbena::net
