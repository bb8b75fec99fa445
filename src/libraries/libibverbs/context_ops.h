// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

namespace verbena::verbs {

// Fills what the provider left null: the extended operations that every provider has through its interface
// (query_device_ex, query_port, create_qp_ex, create_srq_ex), those that older programs look for in
// ibv_context_ops, and, for the operations that verbs.h calls unchecked, functions that answer EOPNOTSUPP.
void fill_operations(verbs_context& abi);

}  // namespace verbena::verbs
