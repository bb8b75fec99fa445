// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/result.h"
#include "libraries/librdmacm/identifier.h"

namespace verbena::rdmacm {

// Fills the attributes with which a QP of this identifier enters attributes.qp_state, like the kernel's
// rdma_init_qp_attr(), and returns their mask. Errors: EINVAL if the identifier has no device, the connection
// has ended, the connection's setup is not far enough for that state, or the state is none of INIT, RTR and
// RTS.
Result<int> qp_attributes(Identifier& identifier, ibv_qp_attr& attributes);

// Change the state of the QP that librdmacm has created; return 0 or an errno value. initialize() moves `qp`
// to INIT, or to RTS for UD. The others act on rdma_cm_id::qp, and do nothing if it is null because the
// application manages its own QP. make_unusable() moves the QP to ERR.
int initialize(Identifier& identifier, ibv_qp* qp);
int make_ready_to_receive(Identifier& identifier, uint8_t responder_resources);
int make_ready_to_send(Identifier& identifier, uint8_t initiator_depth);
int make_unusable(Identifier& identifier);

// Enhanced connection establishment (ECE, rdma_set_local_ece(3)): vendor-specific options that REQ and REP
// exchange. librdmacm does the exchange for the QPs that it creates. All functions return 0 or an errno
// value; 0 if the device has no such options.
//
// Start the exchange for a new QP. begin_ece() is called before the QP enters INIT: it stores the QP's
// options, to be sent to the peer. If the identifier is an incoming request, begin_ece() also sets the
// request's options on the QP (none if they are another vendor's). note_local_ece() is called in INIT: for an
// incoming request, it stores the options that the QP accepted.
int begin_ece(Identifier& identifier, ibv_qp* qp);
int note_local_ece(Identifier& identifier, ibv_qp* qp);
// End the exchange of an active connection: settle_ece() sets the options of the peer's REP on the QP.
// read_back_ece() stores the options that the QP accepted.
int settle_ece(Identifier& identifier, const protocol::ConnectionParameters& answer);
int read_back_ece(Identifier& identifier);

}  // namespace verbena::rdmacm
