// SPDX-License-Identifier: Apache-2.0
#include "adapter/objects/memory_windows.h"

#include "adapter/memory/window.h"
#include "adapter/objects/memory_regions.h"
#include "adapter/objects/protection_domains.h"
#include "base/failed_call.h"

namespace verbena::adapter {

Result<ibv_mw*> MemoryWindows::alloc(ibv_pd* pd, ibv_mw_type type) {
  if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2)
    return fail(because(EINVAL, "there is no memory window of type {}", static_cast<int>(type)));
  auto made = table_.make();
  if (!made) return tl::unexpected(made.error());
  std::unique_ptr<Mw> mw = std::move(*made);
  const auto kind = type == IBV_MW_TYPE_1 ? memory::RegionKind::kWindow1 : memory::RegionKind::kWindow2;
  memory::make_window(mw->window, kind, Pd::of(pd).id);
  const auto key = device_.keys().insert(&mw->window);
  if (!key) return tl::unexpected(key.error());
  mw->context = device_.context();
  mw->pd = pd;
  mw->rkey = *key;
  mw->handle = device_.next_handle();
  mw->type = type;
  mw->domain = &Pd::of(pd);
  ++Pd::of(pd).users;
  return table_.add(std::move(mw));
}

void MemoryWindows::retire(Mw& mw) {
  memory::KeyTable& keys = device_.keys();
  keys.locked([&] {
    memory::unbind_window(keys, mw.window);
    keys.unlink(mw.window);
  });
  keys.await_readers();
}

int MemoryWindows::dealloc(ibv_mw* mw) {
  retire(Mw::of(mw));
  --Mw::of(mw).domain->users;
  table_.destroy(Mw::of(mw));
  return 0;
}

// For windows of type 1. The application binds those of type 2 by requests that it posts.
int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind) {
  const ibv_mw_bind_info& info = bind->bind_info;
  if ((info.mw_access_flags & IBV_ACCESS_ZERO_BASED) != 0) {
    const int error = because(EINVAL, "a memory window of type 1 cannot have IBV_ACCESS_ZERO_BASED");
    say_call_failed("ibv_bind_mw", error);
    return error;
  }
  if (info.mr != nullptr && Mr::of(info.mr).registration->kind == Registration::Kind::kNull)
    return EOPNOTSUPP;  // ibv_alloc_null_mr(3)
  ibv_send_wr request{};
  request.wr_id = bind->wr_id;
  request.opcode = IBV_WR_BIND_MW;
  request.send_flags = bind->send_flags;
  request.bind_mw = {mw, ibv_inc_rkey(mw->rkey), info};
  ibv_send_wr* bad = nullptr;
  const int error = qp->context->ops.post_send(qp, &request, &bad);
  // The key changes at once: the application may send it to its peer right behind the binding.
  if (error == 0) mw->rkey = request.bind_mw.rkey;
  return error;
}

}  // namespace verbena::adapter
