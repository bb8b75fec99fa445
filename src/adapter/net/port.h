// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "adapter/transport/packet_io.h"
#include "adapter/transport/route.h"
#include "base/cache_line.h"
#include "base/result.h"
#include "base/time.h"
#include "wire/roce/packet.h"

namespace verbena::net {

// Reasons to drop received packets before they reach a QP, in the order of PortCounters::dropped.
enum class DropReason : uint8_t {
  kTruncated,
  kUnknownOpcode,
  kBadVersion,
  kBadPadding,
  kUnexpectedPayload,
  kBadIcrc,
  kForeignSlot,   // the QPN is of another slot, though it was steered here
  kNoQueuePair,   // no such QPN, or the QP is not ready to receive
  kWrongService,  // an opcode of another transport service than the QP's
  kBadPkey,
  kBadSource,  // not from the address of the QP's peer to the QP's own
  kCount,
};
const char* drop_reason_name(DropReason reason);

// A counter with one writer at a time and any number of readers. For the writer it costs as little as a plain
// number.
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

// The counters of a shard's ports. May be in memory shared with other processes: see
// adapter/engine/port_counters.h.
struct PortCounters {
  Count sent_packets;
  Count sent_bytes;        // UDP payload
  Count received_packets;  // dropped ones included
  Count received_bytes;
  Count send_errors;  // refused by the kernel (no route, too long); a loss to the peer
  std::array<Count, static_cast<size_t>(DropReason::kCount)> dropped;
};

// Takes the packets that a Port has received, verified and parsed.
class PacketHandler {
 public:
  virtual ~PacketHandler() = default;
  virtual void on_packet(const transport::IncomingPacket& packet) = 0;
};

// Sends and receives batches of RoCEv2 packets for one shard.
//
// One thread at a time: the holder of the shard's lock. send() stages packets, which leave at flush() at the
// latest. Packets of one path and destination slot leave in the order of send(). Nothing is allocated per
// packet.
class alignas(kCacheLine) Port : public transport::PacketSink {
 public:
  // Whether packets of the path may leave by this port. A shard uses the first of its ports for which it is
  // true.
  virtual bool leads_to(const roce::Path& path) const {
    (void)path;
    return true;
  }

  // Checks before sending whether packets of the path have a route and a neighbour to go to. Waits at most
  // for `patience` until the neighbour is found; with 0 the neighbour is not searched for. Errors, with a
  // reason: ENETUNREACH, ETIMEDOUT and others. Any thread.
  virtual Result<void> check(const roce::Path& path, Duration patience) const {
    (void)path, (void)patience;
    return {};
  }

  // Sends staged packets to the wire. False: the wire is full and some packets wait; call again later.
  virtual bool flush() = 0;

  // Receives at most about `budget` packets (a batch that was begun is finished) and passes valid ones to the
  // handler. Never blocks. Returns the number of packets read, invalid ones included; 0: nothing was there.
  virtual uint32_t receive(PacketHandler& handler, uint32_t budget) = 0;

  // Whether received packets need their traffic class, hop limit and flow label. Only datagram QPs show them,
  // in a GRH, and they cost about 0.1 us per datagram. Otherwise a received Path has the defaults. Initially
  // they are wanted.
  virtual void want_ip_details(bool wanted) { (void)wanted; }

  // A descriptor that is readable when receive() would find packets; -1: there is none, and receive() must be
  // polled.
  virtual int receive_fd() const = 0;
  // A descriptor that becomes writable when flush() can continue; -1: none. Call after each flush() that
  // returned false: the descriptor may differ each time.
  virtual int send_fd() const = 0;

  // Whether the port still owns the descriptors that it receives by, and its pipe for sending without a copy.
  // False: the application has closed one, and its number may be another file's (base/own_fd.h).
  virtual bool is_whole() const { return true; }

  // The properties of the network behind the port, which do not change.
  virtual const transport::Traits& traits() const = 0;

  virtual PortCounters& counters() = 0;
};

// The ports of one shard, in order of preference.
using PortList = std::vector<std::unique_ptr<Port>>;

}  // namespace verbena::net
