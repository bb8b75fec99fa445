// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

namespace verbena::adapter {

// EINVAL when a QP cannot be that large.
int check_capacities(const ibv_qp_cap& cap);

// What a QP really has room for: rings are powers of two, the space of a gather list serves inline data too.
void round_up(ibv_qp_cap& cap);

}  // namespace verbena::adapter
