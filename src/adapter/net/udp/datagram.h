// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <sys/socket.h>

#include "adapter/net/port.h"
#include "base/bytes.h"
#include "wire/roce/icrc.h"
#include "wire/roce/path.h"

namespace verbena::net {

// The information about a received datagram besides its data.
struct DatagramOrigin {
  roce::Path path;  // from the sender to this host
  uint16_t source_port = 0;
  uint32_t segment_bytes = 0;  // of each packet if GRO merged several; else 0
  bool has_destination = false;
  bool reassembled = false;  // whether it came in IP fragments
};

// Reads the origin from the source address and the control messages of a datagram. REQUIRES: the datagram was
// received on a socket with set_receive_options()
DatagramOrigin origin_of(msghdr& message);

// Splits datagrams into the packets that GRO has merged. Passes on valid RoCEv2 packets whose destination QPN
// is in the slot or is the multicast QPN. Counts all packets in `counters`. One thread at a time.
class DatagramSplitter {
 public:
  // `port` is the UDP port of the receiving socket, which the ICRC covers.
  DatagramSplitter(uint16_t port, uint32_t slot, PortCounters& counters)
      : port_(port), slot_(slot), counters_(counters) {}

  // Passes the datagram's valid packets to the handler. Returns the number of packets in the datagram,
  // including dropped ones.
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
