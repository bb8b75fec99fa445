// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "libraries/libibverbs/provider/provider.h"

namespace verbena::verbs {

// Several providers as one. Any thread.

// The devices of all, provider after provider. A name belongs to the provider that comes first, as the names
// of the kernel's devices are unique. A provider that fails takes nothing from the others: its error is the
// answer only if there is no device at all.
Result<std::vector<std::shared_ptr<provider::Device>>> merged_devices(
    std::span<provider::Provider* const> providers);

// Asks each provider whether the descriptor is its own. EINVAL when it is nobody's, EOPNOTSUPP when no
// provider imports anything.
Result<provider::Provider::Imported> import_device(std::span<provider::Provider* const> providers,
                                                   int cmd_fd);

}  // namespace verbena::verbs
