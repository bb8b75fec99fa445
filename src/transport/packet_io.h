// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "roce/packet.h"
#include "roce/path.h"

namespace verbena::transport {

// What an acknowledgement says: how far the sender of it has come, and with what result (AETH).
struct Acknowledgement {
  roce::Psn psn;
  uint32_t msn;
  uint8_t syndrome;
};

// As a packet of its own.
inline roce::Headers headers_of(const Acknowledgement& acknowledgement, roce::Qpn destination) {
  roce::Headers headers;
  headers.opcode = roce::make_opcode(roce::Service::kRc, roce::Operation::kAcknowledge);
  headers.destination = destination;
  headers.psn = acknowledgement.psn;
  headers.msn = acknowledgement.msn;
  headers.syndrome = acknowledgement.syndrome;
  return headers;
}

// A packet on its way out. Everything pointed to is only borrowed for the call.
struct OutgoingPacket {
  const roce::Path& path;
  const roce::Headers& headers;         // `pad` is set
  std::span<const ConstBytes> payload;  // pieces of user memory, in order; may fault
  uint32_t payload_bytes;               // their sum
  uint32_t count = 1;                   // of packets that are joined; see Traits::joined_bytes
  // Goes to the same QP, ahead of it. Only by a route that takes it along (Traits::carries_acknowledgements).
  const Acknowledgement* acknowledgement = nullptr;
};

enum class SendStatus : uint8_t {
  kSent,   // on its way, or lost as packets may be
  kBusy,   // no room now: the same packet again later
  kFault,  // the payload's memory is gone: nothing was sent
};

// Where transport puts packets. A net::Port is one; so is the simulator's wire.
class PacketSink {
 public:
  virtual ~PacketSink() = default;
  virtual SendStatus send(const OutgoingPacket& packet) = 0;
};

// A packet that came in: parsed, its ICRC good. Borrowed for the call.
struct IncomingPacket {
  const roce::Packet& packet;
  const roce::Path& path;  // as the sender used it: source is the sender
  uint32_t udp_bytes;      // length of the UDP payload, ICRC included: what a GRH's payload length says
  const Acknowledgement* acknowledgement = nullptr;  // came ahead of it, from the same QP
};

}  // namespace verbena::transport
