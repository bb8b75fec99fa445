// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "libraries/librdmacm/identifier.h"

namespace verbena::rdmacm {

// Enhanced connection establishment (ECE, rdma_set_local_ece(3)): vendor-specific options that REQ and REP
// exchange. librdmacm does the exchange for the QPs that it creates. All functions return 0 or an errno
// value; 0 if the device has no such options.
//
// Start the exchange for a new QP: begin_ece() before the QP enters INIT, note_local_ece() after that. For an
// incoming request, begin_ece() sets the peer's options and note_local_ece() stores what the QP accepted.
int begin_ece(Identifier& identifier, ibv_qp* qp);
int note_local_ece(Identifier& identifier, ibv_qp* qp);
// End the exchange of an active connection: settle_ece() sets the options of the peer's REP on the QP.
// read_back_ece() stores the options that the QP accepted.
int settle_ece(Identifier& identifier, const protocol::ConnectionParameters& answer);
int read_back_ece(Identifier& identifier);

}  // namespace verbena::rdmacm
