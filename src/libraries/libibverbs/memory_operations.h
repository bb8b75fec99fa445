// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

namespace verbena::verbs {

// Fills the memory operations that inline functions of verbs.h call through the context: memory windows,
// device memory, null regions, advice. Called by fill_operations().
void fill_memory_operations(verbs_context& abi);

}  // namespace verbena::verbs
