// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include "adapter/objects/qp.h"

namespace verbena::adapter {

// What ibv_create_qp_ex(3) offers beyond ibv_create_qp(3).

// 0, or why the additional fields that comp_mask names are refused: EINVAL for what makes no sense,
// EOPNOTSUPP for what this adapter does not do.
int check_extras(const ibv_qp_init_attr_ex& attr);

// Takes them over. REQUIRES: check_extras() answered 0, qp.init is filled in
void apply_extras(Qp& qp, const ibv_qp_init_attr_ex& attr);

}  // namespace verbena::adapter
