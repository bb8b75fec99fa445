// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "libraries/librdmacm/identifier.h"

namespace verbena::rdmacm {

// Enhanced connection establishment (rdma_set_local_ece(3)): vendor-specific options that REQ and REP
// exchange. librdmacm does the exchange for the QPs that it creates. Functions return errno values; a device
// without such options is no error.
int begin_ece(Identifier& identifier, ibv_qp* qp);       // for a new QP, before its initialization
int note_local_ece(Identifier& identifier, ibv_qp* qp);  // stores the QP's options after its initialization
// Apply the options in the peer's REP to the QP, and read back what the QP accepted.
int settle_ece(Identifier& identifier, const protocol::ConnectionParameters& answer);
int read_back_ece(Identifier& identifier);

}  // namespace verbena::rdmacm
