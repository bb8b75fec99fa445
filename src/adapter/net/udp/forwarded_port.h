// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "adapter/net/port.h"
#include "adapter/net/udp/datagram.h"
#include "adapter/net/udp/datagram_batch.h"
#include "adapter/net/udp/udp_port.h"
#include "base/own_fd.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace verbena::net {

// The receiving half of a port of make_forwarded_port(). Reads datagrams that the agent has received and
// forwards (control/protocol/messages.h), and passes on valid RoCEv2 packets as a Receiver does.
// The content of forwarded datagrams is checked like that of datagrams from the network. One thread at a
// time.
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
  DatagramSplitter splitter_;
  ReadAhead ahead_;
  DatagramBatch batch_;
};

// Makes a port for a process that has no socket of UDP port 4791. The port sends like a UdpPort, by sockets
// of its own, and receives the datagrams that the agent forwards on `socket` (SOCK_SEQPACKET). While `socket`
// is full, datagrams wait in the agent's UDP socket; when that socket is full, too, datagrams are lost.
// `options.receive_buffer_bytes` is not used, because the agent chooses the buffer size.
Result<std::unique_ptr<Port>> make_forwarded_port(UniqueFd socket, const UdpPortOptions& options);

}  // namespace verbena::net
