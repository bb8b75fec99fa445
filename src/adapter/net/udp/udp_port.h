// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "adapter/net/port.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace verbena::net {

struct UdpPortOptions {
  uint32_t slot = 0;  // of this port's QPs; drops packets to QPNs of other slots (kForeignSlot)
  uint16_t port = roce::kUdpPort;
  // Requested size. Without CAP_NET_ADMIN, the kernel grants at most net.core.rmem_max.
  uint32_t receive_buffer_bytes = 4u << 20;
  uint32_t send_buffer_bytes = 4u << 20;
  // Sends packets to slot 0 and to multicast groups from `port`, by the receive socket. Only processes of the
  // user whose socket is bound to `port` can send from it, so receivers know that this user sent the packet.
  // Packets to other slots need source ports of their own (send_sockets.h).
  bool sends_from_port = false;
  // The counters to which the port adds; they must outlive the port. If null, the port has its own counters.
  PortCounters* counters = nullptr;
};

// A Port over UDP sockets that sends and receives exact RoCEv2 packets, with segmentation offload in both
// directions (GSO, GRO). docs/wire.md describes the method.
class UdpPort : public Port {
 public:
  // Makes a port that receives by `receive_socket`: a bound socket (AF_INET6 dual stack, or AF_INET), as
  // open_receive_socket() returns it to the agent. Returns EINVAL if options.slot is out of range.
  static Result<std::unique_ptr<UdpPort>> create(UniqueFd receive_socket, const UdpPortOptions& options);
};

// Opens and binds a receive socket: dual stack if the machine has IPv6, with SO_REUSEPORT, UDP_GRO and packet
// information. With `port` 0 the kernel chooses the port (for tests). Returns EADDRINUSE if another user or
// program has the port.
Result<UniqueFd> open_receive_socket(uint16_t port);

// Makes the kernel steer packets to the sockets of the port's SO_REUSEPORT group by the slot in the
// destination QPN: slot k to the k-th socket. Packets for slots from `sockets` up go to the socket of slot 0.
// Call again after each new socket. (Uses SO_ATTACH_REUSEPORT_CBPF, which needs no privilege.)
Result<void> attach_slot_steering(int any_socket_of_the_group, uint32_t sockets);

}  // namespace verbena::net
