// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "adapter/net/port.h"
#include "adapter/net/udp/datagram.h"
#include "adapter/net/udp/datagram_batch.h"
#include "base/own_fd.h"

namespace verbena::net {

// The receiving half of a port of make_forwarded_port(): like a Receiver, for datagrams that the agent has
// received and forwards (control/protocol/forwarded_datagram.h). Their content is checked like that of
// datagrams from the network. One thread at a time.
class ForwardedReceiver {
 public:
  // `port`: the UDP port at which the datagrams arrived.
  ForwardedReceiver(UniqueFd socket, uint16_t port, uint32_t slot, PortCounters& counters);

  uint32_t receive(PacketHandler& handler, uint32_t budget);
  // The same for the life of the receiver.
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

}  // namespace verbena::net
