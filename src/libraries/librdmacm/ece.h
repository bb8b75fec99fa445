// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "libraries/librdmacm/identifier.h"

namespace verbena::rdmacm {

// Enhanced connection establishment (rdma_set_local_ece(3)): options of the devices' makers, exchanged in REQ
// and REP. For a QP that librdmacm makes, it does the exchange. Errors are errno values; a device without
// such options is none.
int begin_ece(Identifier& identifier, ibv_qp* qp);       // of a new QP, before it is initialized
int note_local_ece(Identifier& identifier, ibv_qp* qp);  // what it has settled on, once it is
// By the REP.
int settle_ece(Identifier& identifier, const protocol::ConnectionParameters& answer);
int read_back_ece(Identifier& identifier);

}  // namespace verbena::rdmacm
