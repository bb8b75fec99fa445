// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/intrusive_list.h"
#include "base/time.h"
#include "management/cm/mad.h"
#include "management/cm/parameters.h"

namespace verbena::cm {

// The states of a path migration (LAP and APR) of an established connection.
enum class LapState : uint8_t { kNone, kSent, kMraReceived, kReceived, kMraSent };

// The last datagram that a connection sent, stored to be retransmitted by timer or as the answer to a
// duplicate request.
struct Repetition {
  Mad mad;
  bool kept = false;
  MessageType type = MessageType::kReq;  // message type of `mad`
  uint16_t reason = 0;                   // Passage::reason
  uint16_t sent = 0;                     // number of transmissions
};

// The state of one communication ID: a connection between two QPs in IBTA's sense, or a service ID
// resolution. (Not to be confused with control::Connection, a socket to the agent.) The connection table owns
// it; only the manager accesses it.
struct Connection {
  ConnectionInfo info;

  bool has_owner = true;  // the owner has not called destroy() yet
  bool lingers = false;   // in state kIdle, but repeats its last answer for 16 s
  bool is_peer_to_peer = false;
  LapState lap = LapState::kNone;
  uint32_t account = 0;      // the owner's account, against which a half-open connection counts
  uint64_t transaction = 0;  // transaction ID of the current request, which answers carry too
  uint64_t service_id = 0;
  uint64_t local_ca_guid = 0;

  Repetition last;
  uint8_t retries_left = 0;
  uint8_t unasked = 0;         // retransmissions by timer to a peer that has never answered
  Duration timeout{};          // how long to wait for an answer before the first retransmission
  Duration repeat_after{};     // interval of retransmissions: `timeout`, or more after an MRA
  TimePoint expires = kNever;  // of the timer; kNever if none runs, as for most connections
  ListHook wait_hook;          // of the table: connections in TIMEWAIT and lingering ones
};

}  // namespace verbena::cm
