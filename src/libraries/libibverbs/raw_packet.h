// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

namespace verbena::verbs {

// Fills the operations of verbs_context for flow rules, work queues and counters. Inline functions of verbs.h
// call these operations. Called by fill_operations().
void fill_raw_packet_operations(verbs_context& abi);

}  // namespace verbena::verbs
