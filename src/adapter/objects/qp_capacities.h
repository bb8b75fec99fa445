// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include "adapter/objects/custom_memory.h"
#include "adapter/queues/work_queue.h"
#include "base/result.h"

namespace verbena::adapter {

// EINVAL when a QP cannot be that large.
int check_capacities(const ibv_qp_cap& cap);

// What a QP really has room for: rings are powers of two, the space of a gather list serves inline data too.
void round_up(ibv_qp_cap& cap);

// The send and the receive ring of a QP.
struct QpRings {
  queues::SendQueue send;
  queues::RecvQueue recv;

  // As large as `cap` says, which has been rounded up. `memory` is where from; null: the system.
  static Result<QpRings> create(const ibv_qp_cap& cap, CustomMemory* memory);
};

}  // namespace verbena::adapter
