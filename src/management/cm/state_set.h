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
