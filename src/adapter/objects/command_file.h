// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "adapter/memory/file_mapping.h"
#include "base/own_fd.h"
#include "base/result.h"

namespace verbena::adapter {

// The device memory that ibv_alloc_dm(3) allocates from: a memfd, whose descriptor is the context's cmd_fd.
// All holders of the descriptor share the memory: other contexts, a child after fork(), other processes
// (ibv_import_dm(3)). The file begins with the table of allocations. The file is sealed at its full size, and
// its free pages take no memory.
//
// Holders trust each other like processes that share a device's descriptor: each can overwrite the memory of
// the others. But no content of the table can make a holder access memory outside the file.
//
// Thread-safe, also across processes.
class DeviceMemoryFile {
 public:
  static constexpr uint64_t kPageBytes = 4096;
  static constexpr uint64_t kBytes = 64ull << 20;

  // One allocation of consecutive whole pages.
  struct Allocation {
    uint64_t offset = 0;  // in bytes, from the first page behind the table
    uint64_t length = 0;  // in bytes, as requested
  };

  // Creates the file for the device of this name. If RLIMIT_FSIZE forbids a file of the full size, capacity()
  // is 0 and nothing can be allocated.
  static Result<DeviceMemoryFile> create(const std::string& device);
  // Opens a file of full size that create() has made, usually in another process. Returns EINVAL if `fd` does
  // not refer to such a file, and EBADF if it is not open.
  static Result<DeviceMemoryFile> open(UniqueFd fd);

  int fd() const { return fd_.get(); }
  const std::string& device() const { return device_; }
  uint64_t capacity() const { return capacity_; }

  // Returns a number that no other object created through the file has, until the 31-bit counter wraps.
  uint32_t next_handle() {
    return table().next_handle.fetch_add(1, std::memory_order_relaxed) & (UINT32_MAX >> 1);
  }

  // Allocates `length` bytes of memory, which read as zeros. Returns ENOMEM if not enough consecutive pages
  // are free, or if the machine has no memory for them. REQUIRES: length > 0
  Result<Allocation> allocate(uint64_t length, uint32_t handle);
  // Frees an allocation's pages. Mappings of the pages stay valid, but a later allocation may use the pages.
  void free(const Allocation& allocation);
  // Returns the allocation with this handle, or ENOENT if there is none.
  Result<Allocation> find(uint32_t handle) const;
  // Maps an allocation, readable and writable. Returns EBADF if the application has closed the file's
  // descriptor; else the errors of mmap(2).
  Result<memory::FileMapping> map(const Allocation& allocation) const;
  // Makes a dma-buf of the allocation's pages with the kernel's udmabuf device. Returns EOPNOTSUPP if this
  // process cannot open /dev/udmabuf, EBADF if the application has closed the file's descriptor, else the
  // device's error.
  Result<UniqueFd> export_dma_buf(const Allocation& allocation) const;

 private:
  static constexpr uint64_t kPages = kBytes / kPageBytes;
  struct Table {
    uint64_t magic;
    char device[64];
    std::atomic<uint32_t> next_handle;
    std::atomic<uint32_t> owners[kPages];   // handle + 1 of the page's allocation; 0 if free
    std::atomic<uint64_t> lengths[kPages];  // bytes of the allocation that begins at this page
  };
  static_assert(std::atomic<uint32_t>::is_always_lock_free && std::atomic<uint64_t>::is_always_lock_free);
  static constexpr uint64_t kMemoryAt = (sizeof(Table) + kPageBytes - 1) / kPageBytes * kPageBytes;

  Table& table() const { return *reinterpret_cast<Table*>(mapping_.data()); }
  bool claim(uint64_t first, uint64_t pages, uint32_t owner);
  void release(uint64_t first, uint64_t pages);

  OwnFd fd_;  // keeps its number, which the application knows as cmd_fd
  std::string device_;
  uint64_t capacity_ = 0;
  memory::FileMapping mapping_;  // of the table
};

class SoftwareContext;

// The file behind a context's descriptor cmd_fd, in place of the kernel's file behind
// /dev/infiniband/uverbs0. All contexts that were imported from the descriptor (ibv_import_device(3)) share
// the objects that were created through the file.
//
// Contexts of one process share protection domains, memory regions and device memory. Contexts of different
// processes share device memory only, since protection domains and memory regions describe the memory of one
// process.
//
// Thread-safe.
class CommandFile {
 public:
  static Result<std::shared_ptr<CommandFile>> create(const std::string& device);
  // Returns the CommandFile of a descriptor. If this process has created or imported the file before, the
  // existing CommandFile is returned, else a new one for a file of another process. The caller keeps the
  // descriptor. Errors: EBADF; EINVAL if the descriptor is no cmd_fd; EMFILE.
  static Result<std::shared_ptr<CommandFile>> import(int fd);

  CommandFile(std::shared_ptr<DeviceMemoryFile> device_memory, bool foreign)
      : device_memory_(std::move(device_memory)), foreign_(foreign) {}

  // Returns whether another process created the file.
  bool is_foreign() const { return foreign_; }

  const std::shared_ptr<DeviceMemoryFile>& device_memory() const { return device_memory_; }
  uint32_t next_handle() { return device_memory_->next_handle(); }

  // Add and remove a context whose objects find_in_contexts() can find. A context joins once it is open, and
  // leaves before it destroys any object.
  void join(SoftwareContext& context) {
    const std::lock_guard guard(mutex_);
    contexts_.push_back(&context);
  }
  void leave(SoftwareContext& context) {
    const std::lock_guard guard(mutex_);
    std::erase(contexts_, &context);
  }

  // Calls find(context) for each joined context, with the lock held, until a result converts to true. Returns
  // that result, or a default-constructed one if there is none. Used to find an object that is imported by
  // its handle.
  template <class Find>
  auto find_in_contexts(Find find) -> decltype(find(std::declval<SoftwareContext&>())) {
    const std::lock_guard guard(mutex_);
    for (SoftwareContext* context : contexts_) {
      if (auto found = find(*context)) return found;
    }
    return {};
  }

 private:
  const std::shared_ptr<DeviceMemoryFile> device_memory_;
  const bool foreign_;
  std::mutex mutex_;
  std::vector<SoftwareContext*> contexts_;
};

}  // namespace verbena::adapter
