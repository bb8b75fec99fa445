// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "libraries/libibverbs/provider/provider.h"

namespace verbena::adapter {

// The software adapter, whose devices are the agent's links. One per process: created by the first call, and
// never destroyed, because threads of the application may outlive static objects.
provider::Provider& software_adapter();

}  // namespace verbena::adapter
