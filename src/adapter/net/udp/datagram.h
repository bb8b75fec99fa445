// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <sys/socket.h>

#include "adapter/net/port.h"
#include "base/bytes.h"
#include "wire/roce/icrc.h"
#include "wire/roce/path.h"

namespace verbena::net {

// The kernel's information about a datagram besides its data.
struct DatagramOrigin {
  roce::Path path;  // from the sender to this host
  uint16_t source_port = 0;
  uint32_t segment_bytes = 0;  // of each packet that GRO merged; 0: not merged
  bool has_destination = false;
  bool reassembled = false;  // from IP fragments
};

// Reads the origin of a message that was received with a name and control messages (set_receive_options()).
DatagramOrigin origin_of(msghdr& message);

// Splits datagrams into the packets that GRO has merged, and passes on valid RoCEv2 packets for the slot or
// for the multicast QPN. One thread at a time.
class DatagramSplitter {
 public:
  // `port`: the receiving socket's UDP port, which the ICRC covers.
  DatagramSplitter(uint16_t port, uint32_t slot, PortCounters& counters)
      : port_(port), slot_(slot), counters_(counters) {}

  // Returns the number of packets in the datagram, dropped ones included.
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
