// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "adapter/transport/packet_io.h"
#include "base/bytes.h"
#include "base/result.h"
#include "base/time.h"
#include "wire/roce/packet.h"
#include "wire/roce/path.h"
#include "wire/roce/psn.h"
#include "wire/roce/qpn.h"

namespace verbena::transport {

// A range of the connected peer's memory.
struct PeerRange {
  // The QP's connection. This is a pointer to a long-lived object, not a copy. A copy would be built field by
  // field for each request and then read by wide loads, for which store forwarding fails.
  const Connection* connection = nullptr;
  uint64_t address = 0;  // in the peer
  uint32_t rkey = 0;
  uint32_t length = 0;  // bytes
  // For traces and counters: path, next PSN and path MTU (in bytes) of the packets that the access replaces.
  // `path` is null if the access is neither traced nor counted.
  const roce::Path* path = nullptr;
  roce::Psn next_psn = {};
  uint32_t path_mtu = 0;
};

// An atomic operation on the eight bytes of a range.
struct AtomicChange {
  bool compares = false;
  uint64_t compare = 0;   // used if `compares`
  uint64_t swap_add = 0;  // the new value if `compares`, else the addend
};

// Executes READs, WRITEs and atomics in the memory of a peer process on this machine, without the peer's
// help; the peer may be asleep. REQUIRES: the caller holds the lock of the QP's shard, and nothing of the QP
// is in flight.
//
// If a function returns false or nullopt, the request has not failed. The requester then sends the request in
// packets, and the peer answers as usual. So every error of a request comes from the peer.
class DirectAccess {
 public:
  virtual ~DirectAccess() = default;

  // Whether the peer is a process of our own user, which may see our keys anyway. Returns false if this
  // process is undumpable.
  virtual bool is_of_our_user() const { return false; }

  // Consecutive requests that could use direct access, but are sent in packets because something is always in
  // flight. `rkey`, `length` and `is_read` describe the next of these requests.
  struct Run {
    uint64_t bytes;  // sent in packets since the last is_best_for()
    uint32_t rkey;
    uint32_t length;
    bool is_read;
  };
  // Whether direct access is so much faster than packets that the QP should stop sending until nothing is in
  // flight, and then use direct access. The requester calls this once per several dozen requests.
  virtual bool is_best_for(const Run& run) = 0;

  // Rendezvous: whether the payloads of a long message should stay in place for the peer to fetch
  // (OutgoingPacket::lent).
  virtual bool lends() const { return false; }

  // read() and write() copy `bytes` bytes at `offset` of the range. REQUIRES: offset + bytes <= range.length,
  // bytes > 0, and the pieces hold `bytes` bytes in total.
  //
  // Copies from the peer into `to`. Returns false if the access fails, or packets are faster. Then a part of
  // `to` may have been written.
  virtual bool read(const PeerRange& range, uint32_t offset, uint32_t bytes,
                    std::span<const ConstBytes> to) = 0;
  // Copies `from` to the peer. Returns false if the access fails, or packets are faster. Then a part of the
  // range may have been written.
  virtual bool write(const PeerRange& range, uint32_t offset, uint32_t bytes,
                     std::span<const ConstBytes> from) = 0;
  // Executes an atomic operation and returns the previous value. Returns nullopt if the operation was not
  // executed. REQUIRES: range.length is 8
  virtual std::optional<uint64_t> change(const PeerRange& range, const AtomicChange& change) = 0;
};

// Properties of a route. Transport services decide by these alone, and do not know whether the route is a
// socket or shared memory. The code that makes a route fills them in (adapter/net/udp for its sockets).
struct Traits {
  // How the receiving side learns of arrivals.
  enum class Progress : uint8_t {
    kDescriptor,  // a descriptor becomes readable
    kAsked,       // the port must be polled
  };

  // Largest payload of one packet, in bytes. No path MTU of a link with this route is larger.
  uint32_t max_payload = 0;
  // Largest batch that is worth sending at once, for example by one system call: in bytes (from BTH to ICRC),
  // and in packets.
  uint32_t burst_bytes = 0;
  uint32_t burst_packets = 1;  // at least 1
  // Cost of a packet in flight besides its payload, in bytes of the receiver's buffer.
  uint32_t charge_per_packet = 0;
  // Max payload of a super-packet, in bytes. A super-packet is a number of consecutive packets of one message
  // that are sent, and arrive, as one. 0: no super-packets. Worthwhile where the cost of a packet does not
  // depend on its length.
  uint32_t joined_bytes = 0;
  // Max bytes and packets of a super-packet whose payload goes by rendezvous (OutgoingPacket::lent).
  uint32_t lent_bytes = 0;
  uint32_t lent_packets = 0;
  // Max number of consecutive small messages that are sent, and arrive, as one batch.
  uint32_t joined_messages = 1;
  // If true, the route sends an acknowledgement inside the next packet to the same QP. The transport may also
  // pass the two in one call (OutgoingPacket::acknowledgement).
  bool carries_acknowledgements = false;
  // If true, the route loses no packets: a full route returns SendStatus::kBusy.
  bool lossless = false;
  Progress progress = Progress::kDescriptor;
  // For routes that may lose packets. UC and UD get no acknowledgements, so they do not learn that a receiver
  // is too slow. They send only blind_burst_bytes at once, and further bytes at blind_bytes_per_microsecond.
  uint32_t blind_burst_bytes = 0;
  uint32_t blind_bytes_per_microsecond = 1;

  // Max packets with this payload in the largest batch that is worth sending at once; at least one.
  uint32_t packets_in_burst(uint32_t payload) const {
    return std::clamp(burst_bytes / (payload + roce::kBthBytes + roce::kIcrcBytes), 1u, burst_packets);
  }
  // Max packets of this payload in a super-packet; at least one.
  uint32_t packets_joined(uint32_t payload) const { return std::max(joined_bytes / payload, 1u); }
  // Max packets of this payload in a super-packet that goes by rendezvous; 0: no rendezvous.
  uint32_t packets_lent(uint32_t payload) const { return std::min(lent_bytes / payload, lent_packets); }
  // Cost of a full burst in flight, in bytes.
  uint32_t burst_charge() const { return burst_bytes + burst_packets * charge_per_packet; }
};

// The route of a connected QP's packets, or of packets to one address handle. The IP path is not part of the
// route: the QP's attributes or the request have it. A program may change the path while the send queue is
// drained (SQD), but this does not change the route.
//
// The sink of a wire route is a port. The sink of a shared-memory route is the channel to another process of
// this machine. `Routes` chooses the route.
struct Route {
  static constexpr uint32_t kNoPort = UINT32_MAX;

  Traits traits;
  PacketSink* sink = nullptr;
  DirectAccess* direct = nullptr;  // access to the peer's memory, besides the sink; null: none
  uint32_t port = kNoPort;         // index of `sink` among its shard's ports; kNoPort: not a port
};

// Max time to wait for a neighbour entry (ARP, NDP). The kernel's RDMA core waits as long
// (rdma_addr_find_l2_eth_by_grh()).
inline constexpr Duration kNeighbourPatience = std::chrono::seconds(1);

// Chooses routes. Called with the shard's lock held.
class Routes {
 public:
  virtual ~Routes() = default;
  // Returns the route to QP `destination`; no_route() if there is none. The route lives as long as the QP
  // that asks.
  virtual const Route& find(const roce::Path& path, roce::Qpn destination) = 0;
  // Like find(), for a QP that a received packet names, and not the program. find() may set up a better
  // route, which costs memory and descriptors. find_known() does not, because anybody may have sent the
  // packet.
  virtual const Route& find_known(const roce::Path& path, roce::Qpn destination) {
    return find(path, destination);
  }

  // Checks whether packets of the path have a route in the kernel and a neighbour: net::Port::check() of the
  // port by which they leave. Waits at most `patience` for the neighbour. Errors: ENETUNREACH, ETIMEDOUT and
  // others. Thread-safe; needs no lock.
  virtual Result<void> check(const roce::Path& path, Duration patience) const {
    (void)path, (void)patience;
    return {};
  }
  // Returns a text for the log: why QP `destination` does not answer, as far as this host knows. Empty if
  // unknown.
  virtual std::string obstacle(const roce::Path& path, roce::Qpn destination) {
    (void)path, (void)destination;
    return {};
  }
  // Whether there is no route to QP `destination` yet, but there may be one soon. Packets sent now would be
  // lost.
  virtual bool is_coming(const roce::Path& /*path*/, roce::Qpn /*destination*/) { return false; }
};

// Returns the Route object that stands for having no route. It drops all packets without an error, as a
// network would, so only the QP's timers notice.
const Route& no_route();

}  // namespace verbena::transport
