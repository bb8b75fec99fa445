// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "adapter/net/port.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace verbena::net {

struct UdpPortOptions {
  uint32_t slot = 0;  // of this port's QPs; packets to QPNs of other slots are dropped (kForeignSlot)
  uint16_t port = roce::kUdpPort;
  uint32_t receive_buffer_bytes = 4u << 20;  // requested; without CAP_NET_ADMIN capped at net.core.rmem_max
  uint32_t send_buffer_bytes = 4u << 20;
  // Sends packets to slot 0 and to multicast groups from `port`, by the receive socket. Only a process of the
  // user whose socket has the port can send from it, so receivers know the sending user. Packets to other
  // slots need source ports of their own (send_sockets.h).
  bool sends_from_port = false;
  // The port's counters, which outlive it; nullptr: the port has its own.
  PortCounters* counters = nullptr;
};

// A Port over UDP sockets: exact RoCEv2, with segmentation offload both ways. docs/wire.md says how.
class UdpPort : public Port {
 public:
  // Takes a bound receive socket (AF_INET6 dual stack, or AF_INET), as the agent opens it with
  // open_receive_socket().
  static Result<std::unique_ptr<UdpPort>> create(UniqueFd receive_socket, const UdpPortOptions& options);
};

// Opens and binds a receive socket: dual stack if the machine has IPv6, with SO_REUSEPORT, UDP_GRO and packet
// information. With `port` 0 the kernel chooses one (tests). Errors: EADDRINUSE when another user or program
// has the port.
Result<UniqueFd> open_receive_socket(uint16_t port);

// Steers packets among the sockets of the port's SO_REUSEPORT group by the slot in the destination QPN. Slots
// from `sockets` up go to slot 0. Call again after each new socket. (SO_ATTACH_REUSEPORT_CBPF: needs no
// privilege.)
Result<void> attach_slot_steering(int any_socket_of_the_group, uint32_t sockets);

}  // namespace verbena::net
