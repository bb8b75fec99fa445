// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "libraries/libibverbs/provider/provider.h"

namespace verbena::verbs {

// Creates a QP from the fields that comp_mask says are there (a caller with older headers has no room for the
// rest) and gives the capabilities back.
Result<ibv_qp*> create_qp(provider::Context& context, ibv_qp_init_attr_ex& attr);

}  // namespace verbena::verbs
