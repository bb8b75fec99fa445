// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "libraries/libibverbs/provider/provider.h"

namespace verbena::verbs {

// Returns the providers behind this copy of the C ABI, in the order in which programs see their devices.
// Defined by the user of this folder: registered_providers.cc for the shared library, and tests with fakes.
// The providers must outlive every call of a verb, also calls during the process's exit.
std::span<provider::Provider* const> registered_providers();

}  // namespace verbena::verbs
