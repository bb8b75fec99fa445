// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include "adapter/memory/region.h"
#include "adapter/objects/limits.h"
#include "adapter/objects/object_table.h"
#include "adapter/objects/open_device.h"

namespace verbena::adapter {

struct Pd;

// A memory window as the application knows it (ibv_alloc_mw(3)).
struct Mw : ibv_mw {
  using Abi = ibv_mw;
  static Mw& of(ibv_mw* mw) { return *static_cast<Mw*>(mw); }

  ListHook owned;
  provider::LiveObject live;
  ObjectLimit::Place place;
  Pd* domain = nullptr;
  memory::Region window;
};

// Creates and owns the memory windows of a context. Send requests bind and invalidate the windows, by the
// rules in adapter/memory/window.h. Thread-safe.
class MemoryWindows {
 public:
  explicit MemoryWindows(OpenDevice& device) : device_(device) {}
  ~MemoryWindows() {
    table_.destroy_all([&](Mw& mw) { retire(mw); });
  }

  Result<ibv_mw*> alloc(ibv_pd* pd, ibv_mw_type type);
  int dealloc(ibv_mw* mw);

 private:
  // Unbinds the window and frees its key. When retire() returns, no thread uses the window.
  void retire(Mw& mw);

  OpenDevice& device_;
  ObjectTable<Mw> table_{object_limits().mws};
};

// Binds a window of type 1 by posting a BIND_MW request (ibv_bind_mw(3)). On success the window has its new
// R_Key at once, before the request completes. Returns 0 or an errno value.
int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind);

}  // namespace verbena::adapter
