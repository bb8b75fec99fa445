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

// Why received packets were dropped before they reached a QP; the order is that of PortCounters::dropped.
enum class DropReason : uint8_t {
  kTruncated,
  kUnknownOpcode,
  kBadVersion,
  kBadPadding,
  kUnexpectedPayload,
  kBadIcrc,
  kForeignSlot,   // steered here though the QPN is another shard's
  kNoQueuePair,   // no such QPN, or the QP is not ready to receive
  kWrongService,  // an opcode of another transport service than the QP's
  kBadPkey,
  kBadSource,  // not from the address of the QP's peer to the QP's own
  kCount,
};
const char* drop_reason_name(DropReason reason);

// A number that one thread at a time counts up and any may read: for the writer as cheap as a plain one.
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

// May lie in memory that is shared with other processes: see adapter/engine/port_counters.h.
struct PortCounters {
  Count sent_packets;
  Count sent_bytes;        // UDP payload
  Count received_packets;  // dropped ones too
  Count received_bytes;
  Count send_errors;  // the kernel refused it (no route, too long); to the peer it is a loss
  std::array<Count, static_cast<size_t>(DropReason::kCount)> dropped;
};

// Receives what a Port has parsed and found whole.
class PacketHandler {
 public:
  virtual ~PacketHandler() = default;
  virtual void on_packet(const transport::IncomingPacket& packet) = 0;
};

// Sends and receives batches of RoCEv2 packets for one shard.
//
// One thread at a time (the shard's lock holder). send() stages; what is staged leaves at flush() at the
// latest, in the order of send() among packets of one path and destination slot. Nothing is allocated per
// packet.
class alignas(kCacheLine) Port : public transport::PacketSink {
 public:
  // Whether packets of the path may leave by it. Of a shard's ports the first is taken.
  virtual bool leads_to(const roce::Path& path) const {
    (void)path;
    return true;
  }

  // Whether packets of the path have a route and a neighbour to go to, as far as can be known before they are
  // sent. Waits at most for `patience` until the neighbour is found; 0: does not look for it. Errors, with a
  // reason: ENETUNREACH, ETIMEDOUT and others. Any thread.
  virtual Result<void> check(const roce::Path& path, Duration patience) const {
    (void)path, (void)patience;
    return {};
  }

  // Pushes staged packets to the wire. False: the wire is full, some wait; call again later.
  virtual bool flush() = 0;

  // Takes what has arrived, at most about `budget` packets (a batch that has begun is finished), and hands
  // each good packet to the handler. Never blocks. Returns how many packets were read, bad ones included: 0
  // means that nothing was there.
  virtual uint32_t receive(PacketHandler& handler, uint32_t budget) = 0;

  // Whether the traffic class, hop limit and flow label of received packets are wanted. Only datagram QPs
  // need them, to show in a GRH, and they cost some 0.1 us a datagram. Without, a received Path has the
  // defaults. At first they are wanted.
  virtual void want_ip_details(bool wanted) { (void)wanted; }

  // A descriptor that is readable when receive() would find something; -1: none, it must be asked.
  virtual int receive_fd() const = 0;
  // A descriptor that is writable when a flush() that answered false may go on; -1: none. Ask after each such
  // flush(): it need not be the same one.
  virtual int send_fd() const = 0;

  // Whether what it receives by is still its own. False: the application has closed a descriptor that is not
  // its own, and the number may be another file's (base/own_fd.h).
  virtual bool is_whole() const { return true; }

  // What its way is like. The same for the port's life.
  virtual const transport::Traits& traits() const = 0;

  virtual PortCounters& counters() = 0;
};

// Those of one shard, in order of preference.
using PortList = std::vector<std::unique_ptr<Port>>;

}  // namespace verbena::net
