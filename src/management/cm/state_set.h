// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>

#include "management/cm/parameters.h"

namespace verbena::cm {

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

// Our REQ is unanswered.
inline constexpr StateSet kWaitsForRep{State::kReqSent, State::kMraReqReceived};

// Passive and not established yet.
inline constexpr StateSet kHalfOpen{State::kReqReceived, State::kMraReqSent, State::kRepSent,
                                    State::kMraRepReceived, State::kSidrReqReceived};

// Passive; the owner has not answered yet.
inline constexpr StateSet kAwaitsOwner{State::kReqReceived, State::kMraReqSent, State::kSidrReqReceived};

// The connection owns the remote QP, so no other connection may use it. Once either side begins to
// disconnect, the QPN is free, because the peer may reuse it before we know that the connection has ended.
inline constexpr StateSet kHoldsRemoteQpn{State::kReqReceived,    State::kMraReqSent,  State::kRepSent,
                                          State::kMraRepReceived, State::kRepReceived, State::kMraRepSent,
                                          State::kEstablished};

// The local QP belongs to the connection, as far as the peer knows.
inline constexpr StateSet kHoldsLocalQpn{
    State::kReqSent,    State::kMraReqReceived, State::kRepSent,  State::kMraRepReceived, State::kRepReceived,
    State::kMraRepSent, State::kEstablished,    State::kDreqSent, State::kDreqReceived};

// Being set up: states that a REJ ends.
inline constexpr StateSet kRejectable{State::kReqSent,    State::kMraReqReceived, State::kReqReceived,
                                      State::kMraReqSent, State::kRepReceived,    State::kMraRepSent,
                                      State::kRepSent,    State::kMraRepReceived};

// A service ID resolution in progress.
inline constexpr StateSet kResolves{State::kSidrReqSent, State::kSidrReqReceived};

}  // namespace verbena::cm
