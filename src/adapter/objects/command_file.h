// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "adapter/objects/device_memory_file.h"

namespace verbena::adapter {

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

  // Whether another process created the file.
  bool is_foreign() const { return foreign_; }

  const std::shared_ptr<DeviceMemoryFile>& device_memory() const { return device_memory_; }
  uint32_t next_handle() { return device_memory_->next_handle(); }

  // Add and remove a context whose objects find_in_contexts() can find. A context joins once it is open, and
  // leaves before it destroys any object.
  void join(SoftwareContext& context);
  void leave(SoftwareContext& context);

  // Calls find(context) for each joined context until a result converts to true. Returns that result, or a
  // default-constructed one if there is none. Used to find an object that is imported by its handle.
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
