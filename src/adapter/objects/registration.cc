// SPDX-License-Identifier: Apache-2.0
#include "adapter/objects/registration.h"

#include "adapter/memory/window.h"
#include "adapter/objects/objects.h"
#include "base/failed_call.h"

namespace verbena::adapter {

Registration::Registration(memory::KeyTable& keys, Kind what, std::shared_ptr<PdState> domain)
    : kind(what), pd(std::move(domain)), keys_(keys) {
  region.pd = pd->id;
}

// Runs with the last context that has the registration. A window of another context may still be bound to it.
Registration::~Registration() {
  memory::unbind_all(keys_, region.windows);
  leave();
}

Result<void> Registration::enter() {
  if (const auto key = keys_.insert(&region); !key) return tl::unexpected(key.error());
  keys_.locked([&] { entered_ = true; });
  ++pd->users;
  if (device_memory) ++device_memory->users;
  return {};
}

// When leave() returns, no shard is in the middle of a copy by this region, and none begins another.
int Registration::leave() {
  const int error = keys_.locked([&] {
    if (!entered_) return ENOENT;
    if (!region.windows.empty()) return because(EBUSY, "memory windows are bound to it");
    keys_.unlink(region);
    entered_ = false;
    return 0;
  });
  if (error != 0) return error;
  shown = {};
  keys_.await_readers();
  --pd->users;
  if (device_memory) --device_memory->users;
  return 0;
}

}  // namespace verbena::adapter
