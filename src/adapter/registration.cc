// SPDX-License-Identifier: Apache-2.0
#include "adapter/registration.h"

#include "adapter/protection_domains.h"
#include "memory/window.h"

namespace verbena::adapter {

Registration::Registration(engine::Shard& shard, Kind what, std::shared_ptr<PdState> domain)
    : kind(what), pd(std::move(domain)), shard_(shard) {
  region.pd = pd->id;
}

// With the last context that has it; a window of another context may still be bound.
Registration::~Registration() {
  shard_.exclusively([&] { memory::unbind_all(region.windows); });
  leave();
}

Result<void> Registration::enter() {
  const auto key = shard_.exclusively([&] {
    auto drawn = shard_.keys().insert(&region);
    entered_ = drawn.has_value();
    return drawn;
  });
  if (!key) return tl::unexpected(key.error());
  ++pd->users;
  if (device_memory) ++device_memory->users;
  return {};
}

// With the shard's lock: nobody is in the middle of a copy, and nobody begins another.
int Registration::leave() {
  const int error = shard_.exclusively([&] {
    if (!entered_) return ENOENT;
    if (!region.windows.empty()) return EBUSY;
    shard_.keys().remove(region.key);
    entered_ = false;
    return 0;
  });
  if (error != 0) return error;
  --pd->users;
  if (device_memory) --device_memory->users;
  return 0;
}

}  // namespace verbena::adapter
