// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include "commands/rdma_core/verbs/devinfo/sheet.h"

namespace verbena::rdma_core {

// Prints the names of the bits in `flags` (ibv_device_cap_flags), and returns them as a JSON array.
Sheet::Json print_capability_flags(const Sheet& sheet, uint32_t flags);

// Prints the attributes that ibv_query_device_ex() adds to ibv_query_device(), and adds them to the JSON
// object. Among them are on-demand paging, clocks, offloads, pacing and tag matching.
void print_extended(const Sheet& sheet, const ibv_device_attr_ex& attributes, Sheet::Json& json);

}  // namespace verbena::rdma_core
