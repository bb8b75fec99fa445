// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "adapter/net/port.h"
#include "adapter/net/udp/receiver.h"
#include "base/own_fd.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace verbena::net {

// Asks the kernel for the information that a Receiver needs with each datagram: the addresses and the segment
// size (UDP_GRO). Calling this again has no effect. Errors: EAFNOSUPPORT if the socket is neither IPv4 nor
// IPv6; those of setsockopt(2).
Result<void> set_receive_options(int fd);

// Makes the socket unable to send, permanently and for all processes that have its descriptor; connect(2)
// does not undo this. So nobody can use the socket to send from its port.
void forbid_sending(int fd);

// Sets whether the kernel also reports the traffic class, hop limit and flow label of each datagram.
void set_ip_details(int fd, bool wanted);

struct UdpPortOptions {
  uint32_t slot = 0;  // of this port's QPs; drops packets to QPNs of other slots (kForeignSlot)
  // The destination port of sent packets. For a forwarded port, also the port at which the agent receives.
  uint16_t port = roce::kUdpPort;
  // Requested size. Without CAP_NET_ADMIN, the kernel grants at most net.core.rmem_max.
  uint32_t receive_buffer_bytes = 4u << 20;
  uint32_t send_buffer_bytes = 4u << 20;
  // Whether packets to slot 0 and to multicast groups are sent by the receive socket, and so from the receive
  // socket's port. Only the user whose socket is bound to this port can send from it, so receivers know that
  // this user sent the packet. Packets to other slots need source ports of their own (send_sockets.h).
  bool sends_from_port = false;
  // The counters to which the port adds; they must outlive the port. If null, the port has its own counters.
  PortCounters* counters = nullptr;
};

// A Port over UDP sockets that sends and receives exact RoCEv2 packets, with segmentation offload in both
// directions (GSO, GRO). docs/wire.md describes the method.
class UdpPort : public Port {
 public:
  // Makes a port that receives by `receive_socket`: a bound socket (AF_INET6 dual stack, or AF_INET), as
  // open_receive_socket() returns it to the agent. Errors: EINVAL if options.slot is out of range; ENOMEM;
  // those of setting the socket's options.
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

// The receiving half of a port of make_forwarded_port(). Reads datagrams that the agent has received and
// forwards (control/protocol/messages.h), and passes on valid RoCEv2 packets as class Receiver does
// (receiver.h). The content of forwarded datagrams is checked like that of datagrams from the network. If the
// other end of `socket` is closed, or a message is malformed, the receiver logs a warning and receives
// nothing more. If the agent ends, the next agent continues at the other end, provided that it gets the
// takeover state, which keeps that end open. One thread at a time.
class ForwardedReceiver {
 public:
  // `port` is the UDP port at which the agent received the datagrams.
  ForwardedReceiver(UniqueFd socket, uint16_t port, uint32_t slot, PortCounters& counters);

  uint32_t receive(PacketHandler& handler, uint32_t budget);
  // Returns the socket's descriptor number, which stays the same as long as the receiver lives.
  int fd() const { return socket_.get(); }
  bool is_whole() const { return socket_.is_ours(); }

 private:
  int64_t take(PacketHandler& handler, ConstBytes message);
  void become_deaf();

  OwnFd socket_;
  OwnFd silent_;  // for become_deaf(), which must not need a new descriptor
  bool is_deaf_ = false;
  DatagramSplitter splitter_;
  ReadAhead ahead_;
  DatagramBatch batch_;
};

// Makes a port for a process that has no socket of UDP port 4791. The port sends like a UdpPort, by sockets
// of its own, and receives the datagrams that the agent forwards on `socket` (SOCK_SEQPACKET). While `socket`
// is full, datagrams wait in the agent's UDP socket; when that socket is full, too, datagrams are lost.
// `options.receive_buffer_bytes` is not used, because the agent chooses the buffer size. Errors: EINVAL if
// options.slot is out of range or `socket` is of another type; ENOMEM.
Result<std::unique_ptr<Port>> make_forwarded_port(UniqueFd socket, const UdpPortOptions& options);

}  // namespace verbena::net
