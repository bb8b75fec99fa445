// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "roce/packet.h"
#include "transport/wire.h"

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
  kBadSource,  // from an address that is not the QP's peer
  kCount,
};
const char* drop_reason_name(DropReason reason);

struct PortCounters {
  uint64_t sent_packets = 0;
  uint64_t sent_bytes = 0;        // UDP payload
  uint64_t received_packets = 0;  // dropped ones too
  uint64_t received_bytes = 0;
  uint64_t send_errors = 0;  // the kernel refused it (no route, too long); to the peer it is a loss
  std::array<uint64_t, static_cast<size_t>(DropReason::kCount)> dropped{};
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
class Port : public transport::PacketSink {
 public:
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

  virtual PortCounters& counters() = 0;
};

}  // namespace verbena::net
