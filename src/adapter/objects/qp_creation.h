// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include "adapter/objects/objects.h"
#include "adapter/objects/qp.h"
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

// ---- the features of ibv_create_qp_ex(3) beyond ibv_create_qp(3)

// Checks the additional fields that attr.comp_mask names. Returns EINVAL for values that every device
// refuses, EOPNOTSUPP for features that this adapter lacks, else 0.
int check_extras(const ibv_qp_init_attr_ex& attr);

// Applies the additional fields to a new QP. REQUIRES: check_extras() returned 0, and qp.init is filled in
void apply_extras(Qp& qp, const ibv_qp_init_attr_ex& attr);

}  // namespace verbena::adapter
