// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "adapter/transport/packet_io.h"
#include "adapter/transport/route.h"
#include "base/cache_line.h"
#include "base/result.h"
#include "base/time.h"
#include "base/unique_fd.h"
#include "wire/roce/packet.h"

namespace verbena::net {

// Reasons to drop received packets before they reach a QP. The values index PortCounters::dropped.
enum class DropReason : uint8_t {
  kTruncated,
  kUnknownOpcode,
  kBadVersion,
  kBadPadding,
  kUnexpectedPayload,
  kBadIcrc,
  kForeignSlot,   // steered to this port, but the QPN is of another slot
  kNoQueuePair,   // no such QPN, or the QP is not ready to receive
  kWrongService,  // the opcode is not of the QP's transport service
  kBadPkey,
  kBadSource,  // source or destination address is not that of the QP's connection
  kCount,
};
inline constexpr std::array<const char*, static_cast<size_t>(DropReason::kCount)> kDropReasonNames = {
    "truncated",    "unknown_opcode", "bad_version",   "bad_padding", "unexpected_payload", "bad_icrc",
    "foreign_slot", "no_queue_pair",  "wrong_service", "bad_pkey",    "bad_source"};

// A statistics counter with one writer at a time and any number of readers. Adding costs no more than with a
// plain integer, because it is no atomic read-modify-write.
class Count {
 public:
  operator uint64_t() const { return value_.load(std::memory_order_relaxed); }
  Count& operator+=(uint64_t amount) {
    value_.store(*this + amount, std::memory_order_relaxed);
    return *this;
  }
  Count& operator++() { return *this += 1; }

 private:
  std::atomic<uint64_t> value_{0};
};

// The counters of a shard's ports. The counters may be in memory that is shared with other processes: see
// adapter/engine/status_mapping.h.
struct PortCounters {
  Count sent_packets;
  Count sent_bytes;        // UDP payload
  Count received_packets;  // including dropped packets
  Count received_bytes;
  Count send_errors;  // packets that the kernel refused (no route, too long) and that are lost
  std::array<Count, static_cast<size_t>(DropReason::kCount)> dropped;
};

// Takes each packet that a Port has received, verified and parsed. A packet is valid during the call only.
class PacketHandler {
 public:
  virtual ~PacketHandler() = default;
  virtual void on_packet(const transport::IncomingPacket& packet) = 0;
};

// Sends and receives batches of RoCEv2 packets for one shard.
//
// Only the thread that holds the shard's lock may call a port, except for check(). A packet is staged by
// send(), and leaves at the next flush() at the latest. Packets of one path and destination slot leave in the
// order of send(). No memory is allocated per packet.
class alignas(kCacheLine) Port : public transport::PacketSink {
 public:
  // Returns whether packets of the path can leave by this port. A shard sends the packets of a path by the
  // first of its ports for which leads_to() is true.
  virtual bool leads_to(const roce::Path& path) const {
    (void)path;
    return true;
  }

  // Checks before sending whether the kernel has a route for packets of the path, and a hardware address for
  // their next hop. Waits at most for `patience` until the next hop answers; with 0, the port does not search
  // for the address. Errors, with a reason: ENETUNREACH, ETIMEDOUT and others. Any thread.
  virtual Result<void> check(const roce::Path& path, Duration patience) const {
    (void)path, (void)patience;
    return {};
  }

  // Sends all staged packets. Returns false if a socket is full and packets wait; call again later.
  virtual bool flush() = 0;

  // Receives packets and passes the valid ones to the handler. Stops when `budget` packets were read; the
  // last batch of datagrams may exceed the budget. May stop earlier, although more packets wait. Never
  // blocks. Returns the number of packets read, including invalid ones. Returns 0 if none had arrived.
  virtual uint32_t receive(PacketHandler& handler, uint32_t budget) = 0;

  // Sets whether received packets need their traffic class, hop limit and flow label; initially they do. Only
  // UD QPs show these values to the application, in a GRH, and reading them costs about 0.1 us per datagram.
  // If not `wanted`, the Path of a received packet has default values for them.
  virtual void want_ip_details(bool wanted) { (void)wanted; }

  // Returns a descriptor that is readable when receive() would find packets, or -1 if the port has none and
  // receive() must be polled.
  virtual int receive_fd() const = 0;
  // Returns a descriptor that becomes writable when flush() can continue, or -1 if there is none. Call after
  // each flush() that returned false, because the descriptor may differ each time.
  virtual int send_fd() const = 0;

  // Returns false if the application has closed one of the port's descriptors; then the descriptor's number
  // may be another file's (base/own_fd.h). Checks the descriptors for receiving, and the pipe for sending
  // without a copy.
  virtual bool is_whole() const { return true; }

  // Returns the properties of the network behind the port, which do not change.
  virtual const transport::Traits& traits() const = 0;

  virtual PortCounters& counters() = 0;
};

// The ports of one shard, in order of preference.
using PortList = std::vector<std::unique_ptr<Port>>;

// The socket by which a shard receives packets from other hosts: one of two kinds, or none. The agent passes
// the socket to the process when it leases a slot to the shard. Without a socket, the shard reaches only
// peers on this host.
struct Ways {
  uint32_t slot = 0;
  UniqueFd udp_socket;      // bound to UDP port 4791, or empty
  UniqueFd is_forwarded{};  // the socket on which the agent forwards packets, or empty; used first
};

// Opens the ports of a shard, in order of preference. Returns an empty list if `ways` has no socket. The
// ports add to `counters`, which must outlive the ports. Errors: ENOMEM; EINVAL if the slot is out of range.
Result<PortList> open_ports(Ways ways, PortCounters& counters);

// The type of open_ports(). Tests and benchmarks replace open_ports() by a function that makes simulated
// ports.
using PortFactory = std::function<Result<PortList>(Ways ways, PortCounters& counters)>;

}  // namespace verbena::net
