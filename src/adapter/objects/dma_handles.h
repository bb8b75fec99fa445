// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "adapter/objects/object_table.h"
#include "adapter/objects/open_device.h"
#include "adapter/objects/user_count.h"
#include "libraries/libibverbs/provider/newer_objects.h"

namespace verbena::adapter {

// A DMA handle (ibv_alloc_dmah(3)). It has no effect: writes of a CPU carry no processing hints. Its
// attributes are checked as the kernel and mlx5 check them.
struct Dmah : provider::DmaHandle {
  using Abi = provider::DmaHandle;
  static Dmah& of(provider::DmaHandle* handle) { return *static_cast<Dmah*>(handle); }

  ListHook owned;
  provider::LiveObject live;
  Uses uses;  // by memory regions
};

// Creates and owns the DMA handles of a context. Thread-safe.
class DmaHandles {
 public:
  explicit DmaHandles(OpenDevice& device) : device_(device) {}

  // EOPNOTSUPP: unknown fields. EINVAL: a value out of range, no `ph`, or only one of `cpu_id` and
  // `tph_mem_type`. EPERM: the calling thread may not run on that CPU.
  Result<provider::DmaHandle*> alloc(const provider::DmaHandleInitAttr& attr);
  // EBUSY while a memory region uses the handle.
  int dealloc(provider::DmaHandle* handle);

 private:
  OpenDevice& device_;
  ObjectTable<Dmah> table_;
};

}  // namespace verbena::adapter
