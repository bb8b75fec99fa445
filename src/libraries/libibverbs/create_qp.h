// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "libraries/libibverbs/provider/provider.h"

namespace verbena::verbs {

// Creates a QP, and writes the granted capacities back to `attr.cap`. Reads only the fields that comp_mask
// marks as present: the struct of a caller with older headers ends before the others.
Result<ibv_qp*> create_qp(provider::Context& context, ibv_qp_init_attr_ex& attr);

}  // namespace verbena::verbs
