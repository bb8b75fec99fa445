// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "adapter/net/port.h"
#include "adapter/net/udp/datagram.h"
#include "adapter/net/udp/datagram_batch.h"
#include "base/own_fd.h"

namespace verbena::net {

// The receiving half of a HandedPort: as a Receiver, for datagrams that the agent has received and hands over
// (control/protocol/handed_datagram.h). What the sender has written is checked as if it came from the
// network. One thread at a time.
class HandedReceiver {
 public:
  // `port` is the one that the datagrams came to.
  HandedReceiver(UniqueFd socket, uint16_t port, uint32_t slot, PortCounters& counters);

  uint32_t receive(PacketHandler& handler, uint32_t budget);
  // The same for as long as this exists.
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
