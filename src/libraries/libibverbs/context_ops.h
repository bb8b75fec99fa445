// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

namespace verbena::verbs {

// Fills the operations that the provider left null; called for each new context. These are extended
// operations that this library implements for all providers (query_device_ex, query_port, create_qp_ex,
// create_srq_ex and others), and operations that older programs read from ibv_context_ops. Operations that
// verbs.h calls without a null check get functions that return EOPNOTSUPP.
void fill_operations(verbs_context& abi);

}  // namespace verbena::verbs
