// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include "adapter/objects/address_handles.h"
#include "adapter/objects/qp.h"
#include "adapter/queues/work_queue.h"

namespace verbena::adapter {

// Writes a request into the ring as ibv_post_send(3) takes it: checked against the table of rules
// (send_rules.h) and the QP's capabilities. 0, or why it is refused; then the slot's content means nothing.
// REQUIRES: the caller is the send queue's one producer
int fill(queues::SendWqe& wqe, const ibv_send_wr& wr, const Qp& qp);

// Writes where a datagram goes. One whose address handle belongs to another protection domain than the QP
// completes with IBV_WC_LOC_QP_OP_ERR, as with the kernel's rxe (rxe_get_av()).
// REQUIRES: the request's flags are set
void take_address(queues::SendWqe& wqe, const Ah& ah, const Qp& qp);

// Writes what a BIND_MW request is to do.
void fill_binding(queues::SendWqe& wqe, const ibv_mw& window, uint32_t new_key, const ibv_mw_bind_info& info);

}  // namespace verbena::adapter
