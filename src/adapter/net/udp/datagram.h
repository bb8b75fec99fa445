// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <sys/socket.h>

#include "adapter/net/port.h"
#include "base/bytes.h"
#include "wire/roce/icrc.h"
#include "wire/roce/path.h"

namespace verbena::net {

// What the kernel says about a datagram beside its data.
struct DatagramOrigin {
  roce::Path path;  // as the sender used it
  uint16_t source_port = 0;
  uint32_t segment_bytes = 0;  // 0: not merged
  bool has_destination = false;
  bool reassembled = false;  // it came in IP fragments
};

// Of a message that was received with a name and control messages: see set_receive_options().
DatagramOrigin origin_of(msghdr& message);

// Takes datagrams apart into the packets that GRO has merged, and hands on what is a whole RoCEv2 packet for
// our slot, or for the multicast QPN. One thread at a time.
class DatagramSplitter {
 public:
  // `port` is the receiving socket's own, which the ICRC covers.
  DatagramSplitter(uint16_t port, uint32_t slot, PortCounters& counters)
      : port_(port), slot_(slot), counters_(counters) {}

  // Answers how many packets they were.
  uint32_t split(PacketHandler& handler, const DatagramOrigin& origin, ConstBytes datagram);
  void drop(DropReason reason) { ++counters_.dropped[static_cast<size_t>(reason)]; }

 private:
  void take(PacketHandler& handler, const DatagramOrigin& origin, roce::IcrcChecker& icrc,
            ConstBytes udp_payload, uint32_t index);

  uint16_t port_;
  uint32_t slot_;
  PortCounters& counters_;
};

}  // namespace verbena::net
