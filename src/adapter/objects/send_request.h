// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include "adapter/objects/address_handles.h"
#include "adapter/objects/qp.h"
#include "adapter/queues/work_queue.h"

namespace verbena::adapter {

// Writes a request of ibv_post_send(3) into the ring, after checking it against send_rules.h and the QP's
// capacities. Returns 0 or an errno value; after an error the slot's content is undefined. REQUIRES: the
// caller is the send queue's only producer
int fill(queues::SendWqe& wqe, const ibv_send_wr& wr, const Qp& qp);

// Writes the destination of a datagram. If the address handle is of another protection domain than the QP,
// the request completes with IBV_WC_LOC_QP_OP_ERR, as with the kernel's rxe (rxe_get_av()). REQUIRES: the
// request's flags are set
void take_address(queues::SendWqe& wqe, const Ah& ah, const Qp& qp);

// Writes the operands of a BIND_MW request.
void fill_binding(queues::SendWqe& wqe, const ibv_mw& window, uint32_t new_key, const ibv_mw_bind_info& info);

}  // namespace verbena::adapter
