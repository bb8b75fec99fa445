// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/result.h"
#include "libraries/librdmacm/identifier.h"

namespace verbena::rdmacm {

// Fills the attributes with which a QP of this identifier enters attributes.qp_state, like the kernel's
// rdma_init_qp_attr(), and returns their mask. Errors: EINVAL if the identifier has no device, the connection
// has ended, or the connection's setup is not far enough for that state.
Result<int> qp_attributes(Identifier& identifier, ibv_qp_attr& attributes);

// Change the state of the QP that librdmacm has created; return 0 or an errno value. initialize() moves `qp`
// to INIT, or to RTS for UD. The others act on rdma_cm_id::qp, and do nothing if it is null because the
// application manages its own QP. make_unusable() moves the QP to ERR.
int initialize(Identifier& identifier, ibv_qp* qp);
int make_ready_to_receive(Identifier& identifier, uint8_t responder_resources);
int make_ready_to_send(Identifier& identifier, uint8_t initiator_depth);
int make_unusable(Identifier& identifier);

}  // namespace verbena::rdmacm
