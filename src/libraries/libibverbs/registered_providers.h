// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "libraries/libibverbs/provider/provider.h"

namespace verbena::verbs {

// The providers behind this copy of the C ABI, in the order in which programs see their devices. The room's
// user defines it: the shared library in registered_providers.cc, the tests over fakes. They must outlive
// every call, also those made while the process exits.
std::span<provider::Provider* const> registered_providers();

}  // namespace verbena::verbs
