// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "adapter/provider.h"

namespace verbena::verbs {

// The provider behind this copy of the C ABI. Whoever links the room defines it: the shared library names the
// software adapter, the tests a fake. It must outlive every call, also those made while the process exits.
provider::Provider& active_provider();

}  // namespace verbena::verbs
