// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/result.h"
#include "libraries/librdmacm/identifier.h"

namespace verbena::rdmacm {

// Fills the attributes with which a QP of this identifier enters attributes.qp_state, like the kernel's
// rdma_init_qp_attr(), and returns their mask. ENODEV: not bound to a device; EINVAL: that state cannot be
// entered yet.
Result<int> qp_attributes(Identifier& identifier, ibv_qp_attr& attributes);

// State changes that librdmacm makes to the QP that it created. Functions about rdma_cm_id::qp do nothing if
// it is null, that is, if the application manages its own QP. All return errno values.
int initialize(Identifier& identifier, ibv_qp* qp);
int make_ready_to_receive(Identifier& identifier, uint8_t responder_resources);
int make_ready_to_send(Identifier& identifier, uint8_t initiator_depth);
int make_unusable(Identifier& identifier);

}  // namespace verbena::rdmacm
