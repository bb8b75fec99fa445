// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>

#include "adapter/engine/shown_objects.h"
#include "adapter/memory/file_mapping.h"
#include "adapter/memory/key_table.h"
#include "adapter/memory/region.h"
#include "adapter/objects/device_memory_file.h"
#include "adapter/objects/user_count.h"

namespace verbena::adapter {

struct PdState;

// Allocated device memory. Shared by the ibv_dm that made it, those that import it (ibv_import_dm(3)), and
// the registrations of it.
class DeviceMemory {
 public:
  // `ours`: allocated by this process, so that it ends with us if nobody frees it before.
  DeviceMemory(std::shared_ptr<DeviceMemoryFile> from, const DeviceMemoryFile::Allocation& what,
               memory::FileMapping mapped, bool ours)
      : allocation(what), mapping(std::move(mapped)), file_(std::move(from)), allocated_(true), ours_(ours) {}
  ~DeviceMemory() {
    if (ours_) free();
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // Gives it back to the device; what is mapped stays until nobody holds it. False: it was given back before.
  bool free() {
    if (!allocated_.exchange(false)) return false;
    file_->free(allocation);
    return true;
  }
  // We are in a child after fork(): it goes on being the parent's.
  void abandon() { ours_ = false; }

  // A dma-buf of its pages, for other devices. EOPNOTSUPP where there is no /dev/udmabuf that we may open.
  Result<UniqueFd> export_dma_buf() const { return file_->export_dma_buf(allocation); }

  const DeviceMemoryFile::Allocation allocation;
  const memory::FileMapping mapping;
  std::atomic<uint32_t> users{0};  // MRs

 private:
  const std::shared_ptr<DeviceMemoryFile> file_;
  std::atomic<bool> allocated_;
  std::atomic<bool> ours_;
};

// A registered memory region: what the ibv_mr that made it and those that import it (ibv_import_mr(3)) share.
// It ends when it is deregistered, or with the last of them.
class Registration {
 public:
  // Where the memory comes from, which decides what may be done with it later.
  enum class Kind : uint8_t { kUser, kOnDemand, kNull, kDmaBuf, kDeviceMemory };

  Registration(memory::KeyTable& keys, Kind kind, std::shared_ptr<PdState> pd);
  ~Registration();
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;

  // Enters the region, which must have been filled in, into the table. Errors: ENOMEM.
  Result<void> enter();
  // ENOENT when it was left before, EBUSY while windows are bound to it.
  int leave();

  Kind kind;
  // Once entered, under the table's lock.
  memory::Region region;
  std::shared_ptr<PdState> pd;
  memory::FileMapping dma_buf;
  std::shared_ptr<DeviceMemory> device_memory;
  Uses::Use dma_handle;               // of ibv_reg_mr_ex(3), or null
  engine::ShownObjects::Entry shown;  // once entered

 private:
  memory::KeyTable& keys_;
  bool entered_ = false;  // under the table's lock
};

}  // namespace verbena::adapter
