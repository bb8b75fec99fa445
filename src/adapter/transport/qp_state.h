// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include "base/result.h"

namespace verbena::transport {

// The QP state machine as a table (IBTA volume 1, 10.3.1 and tables 91 to 96; Linux ib_modify_qp_is_ok()):
// the transitions of each transport service, with the attributes that each requires and allows.

// Name of the state, for messages.
const char* name_of(ibv_qp_state state);

// Returns 0 if a modify from `from` to `to` may set the attributes in `mask`; else EINVAL, with the reason
// recorded (base/failed_call.h).
int check_transition(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to, int mask);

// Posting rules of the verbs: a send may be posted in RTS, SQD, SQE and ERR, a receive in any state but
// RESET. Otherwise posting fails at once (IBTA volume 1, 10.8.2 and 11.4.1.1). The kernel's rxe_post_send()
// returns EINVAL, and so do we; mlx5's library does not check the state.
constexpr bool accepts_sends(ibv_qp_state state) {
  return state == IBV_QPS_RTS || state == IBV_QPS_SQD || state == IBV_QPS_SQE || state == IBV_QPS_ERR;
}
constexpr bool accepts_receives(ibv_qp_state state) {
  return state != IBV_QPS_RESET;
}

// Whether a QP in this state answers requests and awaits responses.
constexpr bool receives_packets(ibv_qp_state state) {
  return state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD || state == IBV_QPS_SQE;
}

}  // namespace verbena::transport
