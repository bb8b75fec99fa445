// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/result.h"
#include "libraries/librdmacm/identifier.h"

namespace verbena::rdmacm {

// Attributes with which a QP of this identifier enters attributes.qp_state, and their mask, as the kernel's
// rdma_init_qp_attr() gives them. ENODEV: not bound to a device; EINVAL: that state cannot be entered yet.
Result<int> qp_attributes(Identifier& identifier, ibv_qp_attr& attributes);

// What librdmacm does to rdma_cm_id::qp by itself. All do nothing without one, that is, when the application
// brings a QP of its own. Errors are errno values.
int initialize(Identifier& identifier, ibv_qp* qp);
int make_ready_to_receive(Identifier& identifier, uint8_t responder_resources);
int make_ready_to_send(Identifier& identifier, uint8_t initiator_depth);
int make_unusable(Identifier& identifier);

}  // namespace verbena::rdmacm
