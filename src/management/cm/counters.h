// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "management/cm/mad.h"

namespace verbena::cm {

// Why a received datagram was dropped without effect.
enum class DropReason : uint8_t {
  kNotWhole,           // not 256 bytes
  kNotOurs,            // another management class, version, method, or an unknown attribute
  kMalformed,          // a field that cannot be
  kUnknownConnection,  // no such communication ID; DREQs are answered nevertheless
  kWrongPeer,          // the ID is of a connection with another host or QP; or another program of the host
  kUnexpected,         // makes no sense in the connection's state
  kTooManyHalfOpen,    // REQ, SIDR_REQ: the limit on unanswered ones
  kNotAdmitted,        // REQ, SIDR_REQ: the listener's backlog is full
  kPeerToPeerLost,     // REQ of a peer whose REQ yields to ours
};
inline constexpr size_t kDropReasons = 9;
const char* drop_reason_name(DropReason reason);

// What is counted of one GSI. One writer, the manager's thread.
struct Counters {
  using ByMessage = std::array<uint64_t, kMessageTypes>;
  ByMessage sent{};           // retransmissions among them
  ByMessage retransmitted{};  // by timer
  ByMessage received{};
  ByMessage duplicates{};  // received again, answered again where that is the rule
  ByMessage timed_out{};   // given up
  std::array<uint64_t, kDropReasons> dropped{};
  uint64_t stale_connections = 0;    // found when the peer uses their QPN again
  uint64_t time_wait_cut_short = 0;  // by the limit
  uint64_t peer_to_peer = 0;         // REQs that crossed

  uint64_t& of(DropReason reason) { return dropped[static_cast<size_t>(reason)]; }
  uint64_t of(DropReason reason) const { return dropped[static_cast<size_t>(reason)]; }
};

}  // namespace verbena::cm
