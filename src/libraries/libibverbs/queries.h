// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "libraries/libibverbs/provider/provider.h"

namespace verbena::verbs {

// Query the device or a port. Return 0 or an errno value. `attr_size` is the size of the struct in the
// caller's headers, which may be smaller or larger than ours.
int query_device(provider::Context& context, ibv_device_attr_ex* attr, size_t attr_size);
int query_port(provider::Context& context, uint8_t port, void* attr, size_t attr_size);

}  // namespace verbena::verbs
