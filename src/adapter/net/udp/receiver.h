// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "adapter/net/port.h"
#include "adapter/net/udp/datagram.h"
#include "adapter/net/udp/datagram_batch.h"
#include "base/own_fd.h"

namespace verbena::net {

// The receiving half of a UdpPort, also used for the socket of a multicast group. Reads datagrams, splits
// datagrams that GRO has merged, and passes on valid RoCEv2 packets whose destination QPN is in the slot or
// is the multicast QPN. One thread at a time.
class Receiver {
 public:
  // `port` is the socket's UDP port, which the ICRC covers.
  Receiver(UniqueFd socket, uint16_t port, uint32_t slot, PortCounters& counters);

  uint32_t receive(PacketHandler& handler, uint32_t budget);
  int fd() const { return socket_.get(); }
  bool is_whole() const { return socket_.is_ours(); }
  void close() { socket_.reset(); }

 private:
  OwnFd socket_;
  DatagramSplitter splitter_;
  ReadAhead ahead_;
  DatagramBatch batch_;
};

}  // namespace verbena::net
