// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "libraries/libibverbs/provider/provider.h"

namespace verbena::verbs {

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
