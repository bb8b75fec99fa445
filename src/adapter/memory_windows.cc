// SPDX-License-Identifier: Apache-2.0
// Memory windows: what binds and invalidates them are requests, and memory/window.h has the rules.
#include "adapter/software_context.h"
#include "memory/window.h"

namespace verbena::adapter {
namespace {

// Until the requests that bind them are executed, a window is of no use.
constexpr bool kWindowsCanBeBound = false;

}  // namespace

Result<ibv_mw*> SoftwareContext::alloc_mw(ibv_pd* pd, ibv_mw_type type) {
  if (!kWindowsCanBeBound) return fail(EOPNOTSUPP);
  if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2) return fail(EINVAL);
  auto mw = std::make_unique<Mw>();
  const auto kind = type == IBV_MW_TYPE_1 ? memory::RegionKind::kWindow1 : memory::RegionKind::kWindow2;
  memory::make_window(mw->window, kind, Pd::of(pd).id);
  const auto key = shard().exclusively([&] { return shard().keys().insert(&mw->window); });
  if (!key) return tl::unexpected(key.error());
  mw->context = &abi().context;
  mw->pd = pd;
  mw->rkey = *key;
  mw->handle = next_handle();
  mw->type = type;
  ++Pd::of(pd).users;
  const std::lock_guard guard(objects_mutex_);
  mws_.push_back(*mw);
  return mw.release();
}

void SoftwareContext::retire(Mw& mw) {
  shard().exclusively([&] {
    memory::unbind_window(mw.window);
    shard().keys().remove(mw.window.key);
  });
}

int SoftwareContext::dealloc_mw(ibv_mw* mw) {
  retire(Mw::of(mw));
  --Pd::of(mw->pd).users;
  const std::lock_guard guard(objects_mutex_);
  delete &Mw::of(mw);
  return 0;
}

}  // namespace verbena::adapter
