// SPDX-License-Identifier: Apache-2.0
// The one file of this room that knows which providers there are. A further one is a further line here.
#include "verbs/registered_providers.h"

#include <array>

#include "adapter/software_adapter.h"

namespace verbena::verbs {

std::span<provider::Provider* const> registered_providers() {
  static const std::array<provider::Provider*, 1> providers{&adapter::software_adapter()};
  return providers;
}

}  // namespace verbena::verbs
