// SPDX-License-Identifier: Apache-2.0
// Device memory: allocated, copied to and from, registered. The rules are those of the kernel's uverbs and of
// mlx5, down to the granularity of copies: a program that keeps them runs everywhere.
#include <cstring>

#include "adapter/software_context.h"
#include "memory/guarded.h"

namespace verbena::adapter {
namespace {

constexpr uint64_t kGranularity = 4;
constexpr uint32_t kMostAlignment = 12;  // log2: every allocation begins on a page
constexpr unsigned kDeviceMemoryAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                         IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
                                         IBV_ACCESS_ZERO_BASED;

int check_copy(const DeviceMemory& memory, uint64_t offset, size_t length) {
  const uint64_t size = memory.allocation.length;
  if (offset > size || length > size - offset) return EFAULT;
  return offset % kGranularity != 0 || length % kGranularity != 0 ? EINVAL : 0;
}

int copy_to_dm(ibv_dm* dm, uint64_t offset, const void* from, size_t length) {
  const DeviceMemory& memory = *Dm::of(dm).memory;
  if (const int error = check_copy(memory, offset, length); error != 0) return error;
  if (length > 0) std::memcpy(memory.mapping.data() + offset, from, length);
  return 0;
}

int copy_from_dm(void* to, ibv_dm* dm, uint64_t offset, size_t length) {
  const DeviceMemory& memory = *Dm::of(dm).memory;
  if (const int error = check_copy(memory, offset, length); error != 0) return error;
  if (length > 0) std::memcpy(to, memory.mapping.data() + offset, length);
  return 0;
}

}  // namespace

ibv_dm* SoftwareContext::adopt(std::shared_ptr<DeviceMemory> memory, uint32_t handle) {
  auto dm = std::make_unique<Dm>();
  dm->context = &abi().context;
  dm->memcpy_to_dm = copy_to_dm;
  dm->memcpy_from_dm = copy_from_dm;
  dm->comp_mask = IBV_DM_MASK_HANDLE;
  dm->handle = handle;
  dm->memory = std::move(memory);
  const std::lock_guard guard(objects_mutex_);
  dms_.push_back(*dm);
  return dm.release();
}

Result<ibv_dm*> SoftwareContext::alloc_dm(ibv_alloc_dm_attr* attr) {
  const std::shared_ptr<DeviceMemoryFile>& file = command_file_->device_memory();
  if (attr->comp_mask != 0 || attr->length == 0 || attr->log_align_req > kMostAlignment) return fail(EINVAL);
  if (attr->length > file->capacity()) return fail(file->capacity() == 0 ? EOPNOTSUPP : EINVAL);
  const uint32_t handle = next_handle();
  const auto allocation = file->allocate(attr->length, handle);
  if (!allocation) return tl::unexpected(allocation.error());
  auto mapping = file->map(*allocation);
  if (!mapping) {
    file->free(*allocation);
    return fail(ENOMEM);
  }
  return adopt(std::make_shared<DeviceMemory>(file, *allocation, std::move(*mapping), true), handle);
}

int SoftwareContext::free_dm(ibv_dm* dm) {
  DeviceMemory& memory = *Dm::of(dm).memory;
  if (memory.users.load() != 0) return EBUSY;
  if (!memory.free()) return ENOENT;
  unimport_dm(dm);
  return 0;
}

Result<ibv_mr*> SoftwareContext::reg_dm_mr(ibv_pd* pd, ibv_dm* dm, uint64_t offset, size_t length,
                                           unsigned access) {
  const std::shared_ptr<DeviceMemory>& memory = Dm::of(dm).memory;
  if ((access & IBV_ACCESS_ZERO_BASED) == 0) return fail(EINVAL);
  if (const int error = check_access(access, kDeviceMemoryAccess); error != 0) return fail(error);
  const uint64_t size = memory->allocation.length;
  if (offset > size || length > size - offset) return fail(EINVAL);
  memory::install_fault_guard();
  auto registration =
      std::make_shared<Registration>(engine_->keys(), Registration::Kind::kDeviceMemory, Pd::of(pd).state);
  registration->device_memory = memory;
  memory::Region& region = registration->region;
  region.base = memory->mapping.data() + offset;
  region.length = length;
  region.access = access;
  if (auto entered = registration->enter(); !entered) return tl::unexpected(entered.error());
  return adopt(std::move(registration), pd, nullptr, next_handle());
}

}  // namespace verbena::adapter
