// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include "adapter/objects/custom_memory.h"
#include "adapter/queues/work_queue.h"
#include "base/result.h"

namespace verbena::adapter {

// EINVAL when a capacity exceeds the device's limit.
int check_capacities(const ibv_qp_cap& cap);

// Raises the requested capacities to those that a QP really gets: rings are powers of two, and the space of a
// gather list also serves inline data.
void round_up(ibv_qp_cap& cap);

// The send ring and the receive ring of a QP.
struct QpRings {
  queues::SendQueue send;
  queues::RecvQueue recv;

  // Allocates rings for `cap`, as round_up() returns it, from `memory`; null: from the system.
  static Result<QpRings> create(const ibv_qp_cap& cap, CustomMemory* memory);
};

}  // namespace verbena::adapter
