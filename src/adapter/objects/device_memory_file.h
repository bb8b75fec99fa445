// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "adapter/memory/file_mapping.h"
#include "base/own_fd.h"
#include "base/result.h"

namespace verbena::adapter {

// Device memory: what ibv_alloc_dm() hands out. It is a file in memory, sealed at its full size and without
// pages where nothing is allocated; the table of what is lies in it too. So every holder of the descriptor,
// which is the context's cmd_fd, has the same device memory: another context, a child after fork(), another
// process (ibv_import_dm(3)). They trust each other as those who share a device's descriptor do; whatever one
// of them writes into the table, the others stay within the file.
//
// Thread-safe, and across processes.
class DeviceMemoryFile {
 public:
  static constexpr uint64_t kPageBytes = 4096;
  static constexpr uint64_t kBytes = 64ull << 20;

  // A stretch, at most once in one process; whole pages.
  struct Allocation {
    uint64_t offset = 0;
    uint64_t length = 0;  // as asked for
  };

  // For the device of this name. A process that may not write a file so large (RLIMIT_FSIZE) gets one that
  // has no memory to allocate.
  static Result<DeviceMemoryFile> create(const std::string& device);
  // One that another process created. EINVAL when it is not one, whatever else it is.
  static Result<DeviceMemoryFile> open(UniqueFd fd);

  int fd() const { return fd_.get(); }
  const std::string& device() const { return device_; }
  uint64_t capacity() const { return capacity_; }

  // A number that no other object made through the file has.
  uint32_t next_handle() {
    return table().next_handle.fetch_add(1, std::memory_order_relaxed) & (UINT32_MAX >> 1);
  }

  // ENOMEM when no run of pages is free, or the machine has no memory for it. Reads as zeros. REQUIRES:
  // length > 0
  Result<Allocation> allocate(uint64_t length, uint32_t handle);
  void free(const Allocation& allocation);
  // What this handle stands for. ENOENT when it stands for nothing.
  Result<Allocation> find(uint32_t handle) const;
  Result<memory::FileMapping> map(const Allocation& allocation) const;
  // A dma-buf of the allocation's pages, by the kernel's udmabuf device. EOPNOTSUPP where this process may
  // not open it.
  Result<UniqueFd> export_dma_buf(const Allocation& allocation) const;

 private:
  static constexpr uint64_t kPages = kBytes / kPageBytes;
  struct Table {
    uint64_t magic;
    char device[64];
    std::atomic<uint32_t> next_handle;
    std::atomic<uint32_t> owners[kPages];   // handle + 1; 0: a free page
    std::atomic<uint64_t> lengths[kPages];  // of the allocation that begins here
  };
  static_assert(std::atomic<uint32_t>::is_always_lock_free && std::atomic<uint64_t>::is_always_lock_free);
  static constexpr uint64_t kMemoryAt = (sizeof(Table) + kPageBytes - 1) / kPageBytes * kPageBytes;

  Table& table() const { return *reinterpret_cast<Table*>(mapping_.data()); }
  bool claim(uint64_t first, uint64_t pages, uint32_t owner);
  void release(uint64_t first, uint64_t pages);

  OwnFd fd_;  // the application knows its number
  std::string device_;
  uint64_t capacity_ = 0;
  memory::FileMapping mapping_;  // the table
};

}  // namespace verbena::adapter
