// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "adapter/objects/object_table.h"
#include "adapter/objects/open_device.h"
#include "adapter/objects/user_count.h"
#include "libraries/libibverbs/provider/newer_objects.h"

namespace verbena::adapter {

// A DMA handle (ibv_alloc_dmah(3)), with which a program asks for PCIe processing hints. The handle has no
// effect here, because the CPU writes the memory and needs no hints. alloc() checks the attributes as the
// kernel and mlx5 do.
struct Dmah : provider::DmaHandle {
  using Abi = provider::DmaHandle;
  static Dmah& of(provider::DmaHandle* handle) { return *static_cast<Dmah*>(handle); }

  ListHook owned;
  provider::LiveObject live;
  Uses uses;  // one for each memory region with this handle
};

// Creates and owns the DMA handles of a context. Thread-safe.
class DmaHandles {
 public:
  explicit DmaHandles(OpenDevice& device) : device_(device) {}

  // Returns EOPNOTSUPP for unknown fields. Returns EINVAL if a value is out of range, `ph` is missing, or
  // only one of `cpu_id` and `tph_mem_type` is given. Returns EPERM if the calling thread may not run on CPU
  // `cpu_id`, and EIO if the link was deleted.
  Result<provider::DmaHandle*> alloc(const provider::DmaHandleInitAttr& attr);
  // Returns EBUSY while a memory region uses the handle, else 0.
  int dealloc(provider::DmaHandle* handle);

 private:
  OpenDevice& device_;
  ObjectTable<Dmah> table_;
};

}  // namespace verbena::adapter
