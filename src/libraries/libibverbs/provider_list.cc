// SPDX-License-Identifier: Apache-2.0
#include "libraries/libibverbs/provider_list.h"

#include <algorithm>
#include <cerrno>

#include "base/log.h"

namespace verbena::verbs {
namespace {

using Devices = std::vector<std::shared_ptr<provider::Device>>;

void append(Devices& all, Devices more) {
  const size_t of_others = all.size();
  for (auto& device : more) {
    const std::string& name = device->info().name;
    const auto has_name = [&](const auto& known) { return known->info().name == name; };
    if (std::any_of(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(of_others), has_name)) {
      log_warning("device {} is left out: another provider has one of this name", name);
    } else {
      all.push_back(std::move(device));
    }
  }
}

}  // namespace

Result<Devices> merged_devices(std::span<provider::Provider* const> providers) {
  Devices all;
  int first_error = 0;
  for (provider::Provider* provider : providers) {
    auto devices = provider->devices();
    if (devices) {
      append(all, std::move(*devices));
    } else if (first_error == 0) {
      first_error = devices.error().code;
    }
  }
  if (all.empty() && first_error != 0) return fail(first_error);
  return all;
}

Result<provider::Provider::Imported> import_device(std::span<provider::Provider* const> providers,
                                                   int cmd_fd) {
  int error = EOPNOTSUPP;
  for (provider::Provider* provider : providers) {
    auto imported = provider->import(cmd_fd);
    if (imported) return imported;
    const int why = imported.error().code;
    if (why != EINVAL && why != EOPNOTSUPP)
      return fail(why);  // the descriptor is this provider's, which cannot serve it
    if (why == EINVAL) error = EINVAL;
  }
  return fail(error);
}

}  // namespace verbena::verbs
