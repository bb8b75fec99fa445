// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include "commands/rdma_core/verbs/devinfo/sheet.h"

namespace verbena::rdma_core {

// Prints a device's attributes without its ports, the limits only if `verbose`. Returns the same as JSON.
Sheet::Json print_device(const Sheet& sheet, ibv_context* context, const ibv_device_attr_ex& attributes,
                         bool verbose);

// Prints a port's attributes, with its GIDs if `verbose`, and returns them as JSON. Returns null, after a
// message, if a query fails.
Sheet::Json print_port(const Sheet& sheet, ibv_context* context, uint8_t port, bool verbose);

// Prints the names of the bits in `flags` (ibv_device_cap_flags), and returns them as a JSON array.
Sheet::Json print_capability_flags(const Sheet& sheet, uint32_t flags);

// Prints the attributes that ibv_query_device_ex() adds to ibv_query_device(), and adds them to the JSON
// object. Among them are on-demand paging, clocks, offloads, pacing and tag matching.
void print_extended(const Sheet& sheet, const ibv_device_attr_ex& attributes, Sheet::Json& json);

}  // namespace verbena::rdma_core
