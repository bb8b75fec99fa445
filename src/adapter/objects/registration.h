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

// Allocated device memory. Shared by the ibv_dm that allocated it, those that import it (ibv_import_dm(3)),
// and the registrations of it. Thread-safe.
class DeviceMemory {
 public:
  // `ours`: this process allocated the memory, so the destructor frees it if free() was not called.
  DeviceMemory(std::shared_ptr<DeviceMemoryFile> from, const DeviceMemoryFile::Allocation& what,
               memory::FileMapping mapped, bool ours)
      : allocation(what), mapping(std::move(mapped)), file_(std::move(from)), allocated_(true), ours_(ours) {}
  ~DeviceMemory() {
    if (ours_) free();
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // Gives the memory back to the device; mappings stay valid. False: it was given back before.
  bool free() {
    if (!allocated_.exchange(false)) return false;
    file_->free(allocation);
    return true;
  }
  // Leaves the memory to the parent: for a child after fork().
  void abandon() { ours_ = false; }

  // Exports the pages as a dma-buf, for other devices. EOPNOTSUPP when this process cannot open /dev/udmabuf.
  Result<UniqueFd> export_dma_buf() const { return file_->export_dma_buf(allocation); }

  const DeviceMemoryFile::Allocation allocation;
  const memory::FileMapping mapping;
  std::atomic<uint32_t> users{0};  // MRs

 private:
  const std::shared_ptr<DeviceMemoryFile> file_;
  std::atomic<bool> allocated_;
  std::atomic<bool> ours_;
};

// A registered memory region. Shared by the ibv_mr that registered it and those that import it
// (ibv_import_mr(3)). It ends when it is deregistered, or else with the last of them.
class Registration {
 public:
  // The origin of the memory, which decides how it may be changed later.
  enum class Kind : uint8_t { kUser, kOnDemand, kNull, kDmaBuf, kDeviceMemory };

  Registration(memory::KeyTable& keys, Kind kind, std::shared_ptr<PdState> pd);
  ~Registration();
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;

  // Enters the region, which must be filled in, into the key table. Errors: ENOMEM.
  Result<void> enter();
  // Takes the region out of the key table. ENOENT when that was done before, EBUSY while windows are bound to
  // it.
  int leave();

  Kind kind;
  // After enter(), guarded by the table's lock.
  memory::Region region;
  std::shared_ptr<PdState> pd;
  memory::FileMapping dma_buf;
  std::shared_ptr<DeviceMemory> device_memory;
  Uses::Use dma_handle;               // of ibv_reg_mr_ex(3), or null
  engine::ShownObjects::Entry shown;  // set after enter()

 private:
  memory::KeyTable& keys_;
  bool entered_ = false;  // guarded by the table's lock
};

}  // namespace verbena::adapter
