// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include "adapter/objects/qp.h"

namespace verbena::adapter {

// ---- the features of ibv_create_qp_ex(3) beyond ibv_create_qp(3)

// Checks the additional fields that attr.comp_mask names. Returns EINVAL for values that every device
// refuses, EOPNOTSUPP for features that this adapter lacks, else 0.
int check_extras(const ibv_qp_init_attr_ex& attr);

// Applies the additional fields to a new QP. REQUIRES: check_extras() returned 0, and qp.init is filled in
void apply_extras(Qp& qp, const ibv_qp_init_attr_ex& attr);

}  // namespace verbena::adapter
