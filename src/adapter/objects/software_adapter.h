// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "libraries/libibverbs/provider/provider.h"

namespace verbena::adapter {

// Returns the process's software adapter, whose devices are the agent's links. The first call creates the
// adapter. It is never destroyed, because threads of the application may outlive static objects.
provider::Provider& software_adapter();

}  // namespace verbena::adapter
