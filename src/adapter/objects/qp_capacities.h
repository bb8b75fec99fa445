// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include "adapter/objects/custom_memory.h"
#include "adapter/queues/work_queue.h"
#include "base/result.h"

namespace verbena::adapter {

// Checks the requested capacities. Returns EINVAL if one exceeds the device's limit, else 0.
int check_capacities(const ibv_qp_cap& cap);

// Raises the requested capacities to those that a QP gets. The numbers of requests become powers of two.
// max_inline_data becomes at least 16 bytes for each send gather entry, because inline data uses the space of
// the gather list.
void round_up(ibv_qp_cap& cap);

// The send ring and the receive ring of a QP.
struct QpRings {
  queues::SendQueue send;
  queues::RecvQueue recv;

  // Allocates rings of the capacities `cap`, which round_up() has raised. The memory comes from `memory`, or
  // from the system if `memory` is null.
  static Result<QpRings> create(const ibv_qp_cap& cap, CustomMemory* memory);
};

}  // namespace verbena::adapter
