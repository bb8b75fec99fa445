// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include "commands/rdma_core/verbs/devinfo/sheet.h"

namespace verbena::rdma_core {

// Prints the names of ibv_device_cap_flags and returns them.
Sheet::Json print_capability_flags(const Sheet& sheet, uint32_t flags);

// Prints the attributes that only ibv_query_device_ex() has, and adds them to the object: on-demand paging,
// clocks, offloads, pacing, tag matching.
void print_extended(const Sheet& sheet, const ibv_device_attr_ex& attributes, Sheet::Json& json);

}  // namespace verbena::rdma_core
