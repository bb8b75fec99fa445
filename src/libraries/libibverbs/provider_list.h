// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "libraries/libibverbs/provider/provider.h"

namespace verbena::verbs {

// Returns the providers behind this copy of the C ABI, in the order in which programs see their devices.
// Defined by the user of this folder: registered_providers.cc for the shared library, and tests with fakes.
// The providers must outlive every call of a verb, also calls during the process's exit.
std::span<provider::Provider* const> registered_providers();

// Combines several providers into one. Thread-safe.

// Returns the devices of all providers, provider after provider. If two providers have a device of the same
// name, omits the second provider's device and logs a warning. Returns a provider's error only if there is no
// device at all.
Result<std::vector<std::shared_ptr<provider::Device>>> merged_devices(
    std::span<provider::Provider* const> providers);

// Opens the device of a command descriptor with the provider that owns the descriptor. Errors: EINVAL if no
// provider owns the descriptor; EOPNOTSUPP if no provider supports imports; other errors of the owner.
Result<provider::Provider::Imported> import_device(std::span<provider::Provider* const> providers,
                                                   int cmd_fd);

}  // namespace verbena::verbs
