// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include "adapter/objects/objects.h"
#include "adapter/objects/qp.h"
#include "adapter/queues/work_queue.h"

namespace verbena::adapter {

// Checks a request of ibv_post_send(3) against send_rules.h and the QP's capacities, and writes the request
// to the ring entry `wqe`. Returns 0 or an errno value; after an error the entry's content is undefined.
// REQUIRES: the caller is the send queue's only producer
int fill(queues::SendWqe& wqe, const ibv_send_wr& wr, const Qp& qp);

// Writes the destination of a datagram to the ring entry. If the address handle and the QP are in different
// protection domains, the request later completes with IBV_WC_LOC_QP_OP_ERR, as with the kernel's rxe
// (rxe_get_av()). REQUIRES: wqe.flags is set
void take_address(queues::SendWqe& wqe, const Ah& ah, const Qp& qp);

// Writes the operands of a BIND_MW request to the ring entry. `new_key` is the R_Key that the binding gives
// the window.
void fill_binding(queues::SendWqe& wqe, const ibv_mw& window, uint32_t new_key, const ibv_mw_bind_info& info);

}  // namespace verbena::adapter
