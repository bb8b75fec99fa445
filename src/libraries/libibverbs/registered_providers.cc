// SPDX-License-Identifier: Apache-2.0
// The only file of this folder that names the providers. A further provider needs one more line here.
#include "adapter/objects/software_adapter.h"
#include "base/only_one.h"
#include "libraries/libibverbs/device_handle.h"

namespace verbena::verbs {

std::span<provider::Provider* const> registered_providers() {
  using Providers = std::array<provider::Provider*, 1>;
  static constinit OnlyOne<Providers> providers;
  return providers.get([] { return new Providers{&adapter::software_adapter()}; });
}

}  // namespace verbena::verbs
