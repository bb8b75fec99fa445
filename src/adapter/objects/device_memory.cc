// SPDX-License-Identifier: Apache-2.0
// The objects of ibv_alloc_dm(3). The rules are those of the kernel's uverbs and of mlx5, down to the
// granularity of copies, so that a program that works here works everywhere.
#include <cstring>
#include <vector>

#include <sched.h>

#include "adapter/objects/software_context.h"
#include "base/failed_call.h"

namespace verbena::adapter {

namespace {

constexpr uint64_t kGranularity = 4;
constexpr uint32_t kMaxAlignment = 12;  // log2: every allocation begins on a page

int check_copy(const DeviceMemory& memory, uint64_t offset, size_t length) {
  const uint64_t size = memory.allocation.length;
  if (offset > size || length > size - offset)
    return because(EFAULT, "{} bytes at offset {} are not within the device memory, which has {}", length,
                   offset, size);
  if (offset % kGranularity != 0 || length % kGranularity != 0)
    return because(EINVAL, "offset {} or length {} is no multiple of {}", offset, length, kGranularity);
  return 0;
}

int refused(const char* call, int error) {
  say_call_failed(call, error);
  return error;
}

int copy_to_dm(ibv_dm* dm, uint64_t offset, const void* from, size_t length) {
  const DeviceMemory& memory = *Dm::of(dm).memory;
  if (const int error = check_copy(memory, offset, length); error != 0)
    return refused("ibv_memcpy_to_dm", error);
  if (length > 0) std::memcpy(memory.mapping.data() + offset, from, length);
  return 0;
}

int copy_from_dm(void* to, ibv_dm* dm, uint64_t offset, size_t length) {
  const DeviceMemory& memory = *Dm::of(dm).memory;
  if (const int error = check_copy(memory, offset, length); error != 0)
    return refused("ibv_memcpy_from_dm", error);
  if (length > 0) std::memcpy(to, memory.mapping.data() + offset, length);
  return 0;
}

}  // namespace

ibv_dm* SoftwareContext::add_dm(std::shared_ptr<DeviceMemory> memory, uint32_t handle) {
  auto dm = std::make_unique<Dm>(*device_);
  dm->memcpy_to_dm = copy_to_dm;
  dm->memcpy_from_dm = copy_from_dm;
  dm->comp_mask = IBV_DM_MASK_HANDLE;
  dm->handle = handle;
  dm->memory = std::move(memory);
  return device_memories_.add(std::move(dm));
}

Result<ibv_dm*> SoftwareContext::alloc_dm(ibv_alloc_dm_attr* attr) {
  const std::shared_ptr<DeviceMemoryFile>& file = device_->command_file().device_memory();
  if (attr->comp_mask != 0) return fail(because(EINVAL, "comp_mask {:#x} is not 0", attr->comp_mask));
  if (attr->length == 0) return fail(because(EINVAL, "length is 0"));
  if (attr->log_align_req > kMaxAlignment)
    return fail(because(EINVAL, "log_align_req {} exceeds {}", attr->log_align_req, kMaxAlignment));
  if (attr->length > file->capacity()) {
    return fail(file->capacity() == 0
                    ? EOPNOTSUPP
                    : because(EINVAL, "length {} exceeds max_dm_size {}", attr->length, file->capacity()));
  }
  const uint32_t handle = device_->next_handle();
  const auto allocation = file->allocate(attr->length, handle);
  if (!allocation) return tl::unexpected(allocation.error());
  auto mapping = file->map(*allocation);
  if (!mapping) {
    file->free(*allocation);
    return fail(ENOMEM);
  }
  return add_dm(std::make_shared<DeviceMemory>(file, *allocation, std::move(*mapping), true), handle);
}

int SoftwareContext::free_dm(ibv_dm* dm) {
  DeviceMemory& memory = *Dm::of(dm).memory;
  if (memory.users.load() != 0)
    return because(EBUSY, "{} memory regions are of it", uint32_t{memory.users.load()});
  if (!memory.free()) return ENOENT;
  device_memories_.destroy(Dm::of(dm));
  return 0;
}

Result<UniqueFd> SoftwareContext::export_dm(ibv_dm* dm) {
  return Dm::of(dm).memory->export_dma_buf();
}

void Dm::retire() {
  if (owner.inherited()) memory->abandon();
}

// Imports from another process use the table in the file.
Result<ibv_dm*> SoftwareContext::import_foreign_dm(uint32_t handle) {
  const auto& file = device_->command_file().device_memory();
  const auto allocation = file->find(handle);
  if (!allocation) return tl::unexpected(allocation.error());
  auto mapping = file->map(*allocation);
  if (!mapping) return tl::unexpected(mapping.error());
  return add_dm(std::make_shared<DeviceMemory>(file, *allocation, std::move(*mapping), false), handle);
}

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
