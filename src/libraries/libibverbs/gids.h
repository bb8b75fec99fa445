// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

namespace verbena::verbs {

// GID types of rdma-core's private interface (enum ibv_gid_type_sysfs), which librdmacm and pyverbs use.
enum class GidSysfsType : int { kIbOrRoceV1 = 0, kRoceV2 = 1 };

}  // namespace verbena::verbs

extern "C" int ibv_query_gid_type(ibv_context* context, uint8_t port, unsigned index,
                                  verbena::verbs::GidSysfsType* type);
