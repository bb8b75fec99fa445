// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>

#include "adapter/transport/direct_access.h"
#include "adapter/transport/packet_io.h"
#include "base/result.h"
#include "base/time.h"
#include "wire/roce/packet.h"
#include "wire/roce/path.h"
#include "wire/roce/qpn.h"

namespace verbena::transport {

// What a way out is like. Transport knows nothing else of it: a service asks these figures and not what the
// way is made of. The maker of the way fills them in (adapter/net/udp for its sockets).
struct Traits {
  // How the receiving side learns that something has arrived.
  enum class Progress : uint8_t {
    kDescriptor,  // a descriptor becomes readable
    kAsked,       // it must be asked
  };

  // The largest payload of one packet, in bytes. No path MTU of a link that goes by it is larger.
  uint32_t max_payload = 0;
  // How many bytes (from BTH to ICRC) and packets leave best together, as by one system call.
  uint32_t burst_bytes = 0;
  uint32_t burst_packets = 1;  // at least 1
  // What a packet in flight costs beside its payload, in bytes of the receiver's buffer.
  uint32_t charge_per_packet = 0;
  // Packets of one message that follow each other may be sent, and then arrive, as one: so many bytes of
  // payload at most. 0: each by itself. It pays where what a packet costs does not depend on its length.
  uint32_t joined_bytes = 0;
  // The same where a payload stays with its sender (OutgoingPacket::lent), and how many packets at most.
  uint32_t lent_bytes = 0;
  uint32_t lent_packets = 0;
  // So many small messages that follow each other may be sent, and then arrive, as one, likewise.
  uint32_t joined_messages = 1;
  // An acknowledgement that is followed by a packet to the same QP travels in that; it may also be handed
  // over with the packet (OutgoingPacket::acknowledgement).
  bool carries_acknowledgements = false;
  // Nothing is lost: a way that is full says so (SendStatus::kBusy).
  bool lossless = false;
  Progress progress = Progress::kDescriptor;
  // Where packets can be lost, services without acknowledgements do not hear of a receiver that cannot
  // follow. So many bytes they send at once, and more at this rate.
  uint32_t blind_burst_bytes = 0;
  uint32_t blind_bytes_per_microsecond = 1;

  // How many packets of this payload leave best together. At least one.
  uint32_t packets_in_burst(uint32_t payload) const {
    return std::clamp(burst_bytes / (payload + roce::kBthBytes + roce::kIcrcBytes), 1u, burst_packets);
  }
  // How many packets of this payload may be joined. At least one.
  uint32_t packets_joined(uint32_t payload) const { return std::max(joined_bytes / payload, 1u); }
  uint32_t packets_lent(uint32_t payload) const { return std::min(lent_bytes / payload, lent_packets); }
  // What a full burst costs in flight.
  uint32_t burst_charge() const { return burst_bytes + burst_packets * charge_per_packet; }
};

// What a connected QP's packets leave by, or those to one address handle. The path in IP's sense stays with
// the QP's attributes or the request: it may change while the send queue is drained (SQD), the route does
// not.
//
// This is a wire's: a port that takes packets. Another process of this machine may be reached by memory
// instead, without packets; that would be another kind of route, and `Routes` the place that chooses it.
struct Route {
  static constexpr uint32_t kNoPort = UINT32_MAX;

  Traits traits;
  PacketSink* sink = nullptr;
  DirectAccess* direct = nullptr;  // beside it; null: there is none
  uint32_t port = kNoPort;         // which of its shard's ports; a copy of a route keeps it
};

// How long the kernel's RDMA core looks for a neighbour (rdma_addr_find_l2_eth_by_grh()).
inline constexpr Duration kNeighbourPatience = std::chrono::seconds(1);

// Chooses routes. With the shard's lock held.
class Routes {
 public:
  virtual ~Routes() = default;
  // The route to a QP. It lives as long as whatever asks: for the QP's whole life.
  virtual const Route& find(const roce::Path& path, roce::Qpn destination) = 0;

  // As net::Port::check(), of the port that packets of the path leave by. Any thread, without the lock.
  virtual Result<void> check(const roce::Path& path, Duration patience) const {
    (void)path, (void)patience;
    return {};
  }
  // For the log: why a QP does not answer, as far as this host knows. Empty: it does not know.
  virtual std::string obstacle(const roce::Path& path, roce::Qpn destination) {
    (void)path, (void)destination;
    return {};
  }
  // Whether there is none yet, and one may come in a moment: what is sent now would be lost.
  virtual bool is_coming(const roce::Path& /*path*/, roce::Qpn /*destination*/) { return false; }
};

// The route of a QP that has none: what is sent is lost, and the timers find out.
const Route& no_route();

}  // namespace verbena::transport
