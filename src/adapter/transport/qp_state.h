// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <infiniband/verbs.h>

#include "base/result.h"

namespace verbena::transport {

// The QP state machine as a table (IBTA volume 1, 10.3.1 and tables 91 to 96; Linux ib_modify_qp_is_ok()):
// the transitions of each transport service, with the attributes that each requires and allows.

// Transport services as bits, for sets of services.
enum ServiceBit : uint8_t {
  kRcService = 1 << 0,
  kUcService = 1 << 1,
  kUdService = 1 << 2,
  kRawService = 1 << 3,
  kXrcSendService = 1 << 4,
  kXrcRecvService = 1 << 5,
};
// Returns the ServiceBit of a QP type; 0 for other types.
constexpr uint8_t service_bit(ibv_qp_type type) {
  switch (type) {
    case IBV_QPT_RC:
      return kRcService;
    case IBV_QPT_UC:
      return kUcService;
    case IBV_QPT_UD:
      return kUdService;
    case IBV_QPT_RAW_PACKET:
      return kRawService;
    case IBV_QPT_XRC_SEND:
      return kXrcSendService;
    case IBV_QPT_XRC_RECV:
      return kXrcRecvService;
    default:
      return 0;
  }
}

// Returns the name of the state, for messages.
const char* name_of(ibv_qp_state state);

// Checks a modify of a QP from state `from` to state `to` that sets the attributes in `mask`
// (ibv_qp_attr_mask). Returns 0 if the table allows it; else EINVAL, with the reason recorded
// (base/failed_call.h).
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
