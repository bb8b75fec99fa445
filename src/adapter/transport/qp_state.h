// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include "base/result.h"

namespace verbena::transport {

// The QP state machine as a table (IBTA volume 1, 10.3.1 and tables 91 to 96; Linux ib_modify_qp_is_ok()):
// which transitions there are for a transport service, which attributes each needs and which it may take
// besides.

// For people.
const char* name_of(ibv_qp_state state);

// 0 when a modify from `from` to `to` with the attributes in `mask` is in order; EINVAL otherwise, with the
// reason told (base/failed_call.h).
int check_transition(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to, int mask);

// Posting rules of the verbs: a send may be posted in RTS, SQD, SQE and ERR, a receive in any state but
// RESET; in another state posting is an immediate error (IBTA volume 1, 10.8.2 and 11.4.1.1). The kernel's
// rxe_post_send() answers EINVAL, and so do we; mlx5's library does not look at the state at all.
constexpr bool accepts_sends(ibv_qp_state state) {
  return state == IBV_QPS_RTS || state == IBV_QPS_SQD || state == IBV_QPS_SQE || state == IBV_QPS_ERR;
}
constexpr bool accepts_receives(ibv_qp_state state) {
  return state != IBV_QPS_RESET;
}

// Whether requests are answered and responses awaited.
constexpr bool receives_packets(ibv_qp_state state) {
  return state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD || state == IBV_QPS_SQE;
}

}  // namespace verbena::transport
