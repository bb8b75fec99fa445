// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "management/cm/mad.h"

namespace verbena::cm {

// The reason why a received datagram was dropped without effect.
enum class DropReason : uint8_t {
  kNotWhole,           // length is not 256 bytes
  kNotOurs,            // other management class, version or method, or unknown attribute
  kMalformed,          // a field has an impossible value
  kUnknownConnection,  // no connection has the communication ID (REP, RTU, DREQ and LAP are answered
                       // nevertheless)
  kWrongPeer,   // the ID belongs to a connection with another host or QP, or another program of the host sent
                // it
  kUnexpected,  // the message makes no sense in the connection's state
  kTooManyHalfOpen,  // REQ, SIDR_REQ: ManagerConfig::max_half_open is reached
  kNotAdmitted,      // REQ, SIDR_REQ: the owner ignored the request, as for a full backlog
  kPeerToPeerLost,   // REQ that crosses our own REQ and yields to ours
};
inline constexpr size_t kDropReasons = 9;
const char* drop_reason_name(DropReason reason);

// Counters of one GSI, written only by the manager's thread.
struct Counters {
  using ByMessage = std::array<uint64_t, kMessageTypes>;
  ByMessage sent{};           // including retransmissions
  ByMessage retransmitted{};  // by timer
  ByMessage received{};
  ByMessage duplicates{};  // received more than once; answered again where the specification says so
  ByMessage timed_out{};   // given up after all retransmissions
  std::array<uint64_t, kDropReasons> dropped{};
  uint64_t stale_connections = 0;    // stale connections, detected because the peer reused the QPN
  uint64_t time_wait_cut_short = 0;  // waits ended early by ManagerConfig::max_waiting
  uint64_t peer_to_peer = 0;         // REQs that crossed a REQ of ours

  uint64_t& of(DropReason reason) { return dropped[static_cast<size_t>(reason)]; }
  uint64_t of(DropReason reason) const { return dropped[static_cast<size_t>(reason)]; }
};

}  // namespace verbena::cm
