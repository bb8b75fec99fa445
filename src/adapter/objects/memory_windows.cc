// SPDX-License-Identifier: Apache-2.0

#include "adapter/memory/window.h"
#include "adapter/objects/software_context.h"
#include "base/failed_call.h"

namespace verbena::adapter {

Result<ibv_mw*> SoftwareContext::alloc_mw(ibv_pd* pd, ibv_mw_type type) {
  if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2)
    return fail(because(EINVAL, "there is no memory window of type {}", static_cast<int>(type)));
  auto made = windows_.make(*device_);
  if (!made) return tl::unexpected(made.error());
  std::unique_ptr<Mw> mw = std::move(*made);
  const auto kind = type == IBV_MW_TYPE_1 ? memory::RegionKind::kWindow1 : memory::RegionKind::kWindow2;
  memory::make_window(mw->window, kind, Pd::of(pd).id);
  const auto key = device_->keys().insert(&mw->window);
  if (!key) return tl::unexpected(key.error());
  mw->pd = pd;
  mw->rkey = *key;
  mw->handle = device_->next_handle();
  mw->type = type;
  mw->domain = &Pd::of(pd);
  ++Pd::of(pd).users;
  return windows_.add(std::move(mw));
}

void Mw::retire() {
  memory::KeyTable& keys = owner.keys();
  keys.locked([&] {
    memory::unbind_window(keys, window);
    keys.unlink(window);
  });
  keys.await_readers();
}

int SoftwareContext::dealloc_mw(ibv_mw* mw) {
  Mw::of(mw).retire();
  --Mw::of(mw).domain->users;
  windows_.destroy(Mw::of(mw));
  return 0;
}

}  // namespace verbena::adapter
