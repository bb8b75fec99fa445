// SPDX-License-Identifier: Apache-2.0

#include <vector>

#include <sched.h>

#include "adapter/objects/software_context.h"
#include "base/failed_call.h"

namespace verbena::adapter {
namespace {

constexpr uint8_t kMaxHint = 3;        // two bits (PCIe, TLP processing hints)
constexpr uint8_t kMaxMemoryType = 1;  // IBV_TPH_MEM_TYPE_VM, IBV_TPH_MEM_TYPE_PM
constexpr uint32_t kMaxProcessors = 1 << 16;

bool may_run_on(uint32_t processor) {
  if (processor >= kMaxProcessors) return false;
  std::vector<cpu_set_t> set(kMaxProcessors / CPU_SETSIZE);
  const size_t bytes = set.size() * sizeof(cpu_set_t);
  return ::sched_getaffinity(0, bytes, set.data()) == 0 && CPU_ISSET_S(processor, bytes, set.data());
}

// Checks the attributes as the kernel and mlx5 do.
int check_handle(const provider::DmaHandleInitAttr& attr) {
  using namespace provider;
  constexpr uint32_t kTag = kDmaHandleCpu | kDmaHandleMemory;
  if ((attr.comp_mask & ~(kTag | kDmaHandleHint)) != 0)
    return because(EOPNOTSUPP, "comp_mask {:#x} has unknown bits", attr.comp_mask);
  if ((attr.comp_mask & kDmaHandleHint) == 0)
    return because(EINVAL, "comp_mask {:#x} lacks the processing hint", attr.comp_mask);
  if (attr.ph > kMaxHint) return because(EINVAL, "ph {} exceeds {}", attr.ph, kMaxHint);
  if ((attr.comp_mask & kTag) == 0) return 0;
  if ((attr.comp_mask & kTag) != kTag)
    return because(EINVAL, "comp_mask {:#x} has one of cpu_id and tph_mem_type", attr.comp_mask);
  if (attr.tph_mem_type > kMaxMemoryType)
    return because(EINVAL, "tph_mem_type {} exceeds {}", attr.tph_mem_type, kMaxMemoryType);
  if (!may_run_on(attr.cpu_id)) return because(EPERM, "this thread may not run on cpu_id {}", attr.cpu_id);
  return 0;
}

}  // namespace

Result<provider::DmaHandle*> SoftwareContext::alloc_dmah(const provider::DmaHandleInitAttr& attr) {
  if (device_->is_gone()) return fail(EIO);
  if (const int error = check_handle(attr); error != 0) return fail(error);
  return dma_handles_.add(std::make_unique<Dmah>(*device_));
}

int SoftwareContext::dealloc_dmah(provider::DmaHandle* handle) {
  Dmah& dmah = Dmah::of(handle);
  if (const long users = dmah.uses.count(); users != 0)
    return because(EBUSY, "{} memory regions use it", users);
  dma_handles_.destroy(dmah);
  return 0;
}

void SoftwareContext::use_dmah(ibv_mr* mr, provider::DmaHandle* handle) {
  Mr::of(mr).registration->dma_handle = Dmah::of(handle).uses.add();
}

}  // namespace verbena::adapter
