// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

namespace verbena::verbs {

// Fills the operations of verbs_context for flow rules, work queues and counters, which verbs.h calls
// directly.
void fill_raw_packet_operations(verbs_context& abi);

}  // namespace verbena::verbs
