// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include "libraries/libibverbs/provider/provider.h"

namespace verbena::verbs {

// Fills the operations that the provider left null; called for each new context. These are extended
// operations that this library implements for all providers (query_device_ex, query_port, create_qp_ex,
// create_srq_ex and others), and operations that older programs read from ibv_context_ops. Inline functions
// of verbs.h call the operations for memory windows, device memory, flow rules, work queues and counters.
// Operations that verbs.h calls without a null check get functions that return EOPNOTSUPP.
void fill_operations(verbs_context& abi);

// Query the device or a port. Return 0 or an errno value. `attr_size` is the size of the struct in the
// caller's headers, which may be smaller or larger than ours.
int query_device(provider::Context& context, ibv_device_attr_ex* attr, size_t attr_size);
int query_port(provider::Context& context, uint8_t port, void* attr, size_t attr_size);

// Creates a QP, and writes the granted capacities back to `attr.cap`. Reads only the fields that comp_mask
// marks as present: the struct of a caller with older headers ends before the others.
Result<ibv_qp*> create_qp(provider::Context& context, ibv_qp_init_attr_ex& attr);

}  // namespace verbena::verbs
