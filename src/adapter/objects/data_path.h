// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

namespace verbena::adapter {

// Fills in the functions that inline functions of verbs.h call through ibv_context::ops. They post to a QP or
// an SRQ, poll a CQ, request an event (ibv_req_notify_cq(3)) and bind a memory window.
void fill_data_path(ibv_context_ops& ops);

}  // namespace verbena::adapter
