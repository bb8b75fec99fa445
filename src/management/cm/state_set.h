// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>

#include "management/cm/parameters.h"

namespace verbena::cm {

// Some of the states.
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

// A REQ of ours is on its way.
inline constexpr StateSet kWaitsForRep{State::kReqSent, State::kMraReqReceived};

// Passive, and not yet established.
inline constexpr StateSet kHalfOpen{State::kReqReceived, State::kMraReqSent, State::kRepSent,
                                    State::kMraRepReceived, State::kSidrReqReceived};

// Passive, and the owner has yet to answer.
inline constexpr StateSet kAwaitsOwner{State::kReqReceived, State::kMraReqSent, State::kSidrReqReceived};

// The remote QP belongs to the connection, so that no other connection can come with the same. One that
// either side has begun to end frees it: the peer may use it again before we hear the end of it.
inline constexpr StateSet kHoldsRemoteQpn{State::kReqReceived,    State::kMraReqSent,  State::kRepSent,
                                          State::kMraRepReceived, State::kRepReceived, State::kMraRepSent,
                                          State::kEstablished};

// The local QP belongs to the connection, as far as the peer knows.
inline constexpr StateSet kHoldsLocalQpn{
    State::kReqSent,    State::kMraReqReceived, State::kRepSent,  State::kMraRepReceived, State::kRepReceived,
    State::kMraRepSent, State::kEstablished,    State::kDreqSent, State::kDreqReceived};

// Being set up: what a REJ ends.
inline constexpr StateSet kRejectable{State::kReqSent,    State::kMraReqReceived, State::kReqReceived,
                                      State::kMraReqSent, State::kRepReceived,    State::kMraRepSent,
                                      State::kRepSent,    State::kMraRepReceived};

// A service ID resolution under way.
inline constexpr StateSet kResolves{State::kSidrReqSent, State::kSidrReqReceived};

}  // namespace verbena::cm
