// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>

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

// A set of connection states.
class StateSet {
 public:
  constexpr StateSet(std::initializer_list<State> states) {
    for (const State state : states) bits_ |= 1u << static_cast<unsigned>(state);
  }
  constexpr bool has(State state) const { return (bits_ >> static_cast<unsigned>(state) & 1) != 0; }

 private:
  static_assert(kStates <= 32);
  uint32_t bits_ = 0;
};

// States in which our REQ is unanswered.
inline constexpr StateSet kWaitsForRep{State::kReqSent, State::kMraReqReceived};

// States of a passive connection or resolution that is not established or answered yet.
inline constexpr StateSet kHalfOpen{State::kReqReceived, State::kMraReqSent, State::kRepSent,
                                    State::kMraRepReceived, State::kSidrReqReceived};

// States of a passive connection or resolution that the owner has not answered yet.
inline constexpr StateSet kAwaitsOwner{State::kReqReceived, State::kMraReqSent, State::kSidrReqReceived};

// States in which the connection holds the peer's QP, so that no other connection may use that QP. Once
// either side begins to disconnect, the QPN is free, because the peer may reuse it before we know that the
// connection has ended.
inline constexpr StateSet kHoldsRemoteQpn{State::kReqReceived,    State::kMraReqSent,  State::kRepSent,
                                          State::kMraRepReceived, State::kRepReceived, State::kMraRepSent,
                                          State::kEstablished};

// States in which the local QP belongs to the connection, as far as the peer knows.
inline constexpr StateSet kHoldsLocalQpn{
    State::kReqSent,    State::kMraReqReceived, State::kRepSent,  State::kMraRepReceived, State::kRepReceived,
    State::kMraRepSent, State::kEstablished,    State::kDreqSent, State::kDreqReceived};

// States of a connection that is being set up, in which the owner may send a REJ.
inline constexpr StateSet kRejectable{State::kReqSent,    State::kMraReqReceived, State::kReqReceived,
                                      State::kMraReqSent, State::kRepReceived,    State::kMraRepSent,
                                      State::kRepSent,    State::kMraRepReceived};

// States of a service ID resolution in progress.
inline constexpr StateSet kResolves{State::kSidrReqSent, State::kSidrReqReceived};

}  // namespace verbena::cm
