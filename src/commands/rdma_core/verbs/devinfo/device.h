// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include "commands/rdma_core/verbs/devinfo/sheet.h"

namespace verbena::rdma_core {

// Prints what a device says of itself, without its ports; its capabilities only if `verbose`. The answer is
// the same as JSON.
Sheet::Json print_device(const Sheet& sheet, ibv_context* context, const ibv_device_attr_ex& attributes,
                         bool verbose);

// Prints a port. Null, after a complaint, if it cannot be asked.
Sheet::Json print_port(const Sheet& sheet, ibv_context* context, uint8_t port, bool verbose);

}  // namespace verbena::rdma_core
