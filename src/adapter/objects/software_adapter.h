// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "libraries/libibverbs/provider/provider.h"

namespace verbena::adapter {

// The software adapter: the devices of the agent's links. One per process, made at the first call, never
// destroyed (threads of the application may outlive every static object).
provider::Provider& software_adapter();

}  // namespace verbena::adapter
