// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

namespace verbena::adapter {

// Fills in the calls that verbs.h makes directly through ibv_context::ops: posting, polling, arming, binding.
void fill_data_path(ibv_context_ops& ops);

}  // namespace verbena::adapter
