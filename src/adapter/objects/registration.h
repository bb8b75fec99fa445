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

// A piece of allocated device memory. The ibv_dm that allocated the memory shares the object with every
// ibv_dm that imports the memory (ibv_import_dm(3)), and with registrations of the memory. Thread-safe.
class DeviceMemory {
 public:
  // If `ours`, this process allocated the memory, and the destructor frees it unless free() was called.
  DeviceMemory(std::shared_ptr<DeviceMemoryFile> from, const DeviceMemoryFile::Allocation& what,
               memory::FileMapping mapped, bool ours)
      : allocation(what), mapping(std::move(mapped)), file_(std::move(from)), allocated_(true), ours_(ours) {}
  ~DeviceMemory() {
    if (ours_) free();
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // Frees the memory's pages in the file; mappings stay valid. Returns false if free() was called before.
  bool free() {
    if (!allocated_.exchange(false)) return false;
    file_->free(allocation);
    return true;
  }
  // Leaves the memory to the parent, so that the destructor does not free it. Called in a child after fork().
  void abandon() { ours_ = false; }

  // Exports the pages as a dma-buf, for other devices. Returns EOPNOTSUPP if /dev/udmabuf cannot be opened.
  Result<UniqueFd> export_dma_buf() const { return file_->export_dma_buf(allocation); }

  const DeviceMemoryFile::Allocation allocation;
  const memory::FileMapping mapping;
  std::atomic<uint32_t> users{0};  // MRs that register this memory

 private:
  const std::shared_ptr<DeviceMemoryFile> file_;
  std::atomic<bool> allocated_;
  std::atomic<bool> ours_;
};

// A registered memory region. The ibv_mr that registered the region shares the Registration with every ibv_mr
// that imports the region (ibv_import_mr(3)). The region stays usable until leave() is called for one of
// them, or until the last of them is destroyed.
class Registration {
 public:
  // The origin of the memory, which decides how ibv_rereg_mr(3) may change the region.
  enum class Kind : uint8_t { kUser, kOnDemand, kNull, kDmaBuf, kDeviceMemory };

  Registration(memory::KeyTable& keys, Kind kind, std::shared_ptr<PdState> pd);
  ~Registration();
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;

  // Enters the region into the key table, so that requests can use its keys. Returns ENOMEM if the key table
  // is full. REQUIRES: `region` is filled in
  Result<void> enter();
  // Removes the region from the key table, and waits until no thread uses the region. Returns ENOENT if the
  // region was removed before, EBUSY while windows are bound to it, else 0.
  int leave();

  Kind kind;
  // After enter(), guarded by the key table's lock.
  memory::Region region;
  std::shared_ptr<PdState> pd;
  memory::FileMapping dma_buf;
  std::shared_ptr<DeviceMemory> device_memory;
  Uses::Use dma_handle;               // marks the DMA handle of ibv_reg_mr_ex(3) as used, or null
  engine::ShownObjects::Entry shown;  // set after enter()

 private:
  memory::KeyTable& keys_;
  bool entered_ = false;  // guarded by the key table's lock
};

}  // namespace verbena::adapter
