// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "adapter/objects/device_memory_file.h"

namespace verbena::adapter {

class SoftwareContext;

// What a context's cmd_fd leads to, as the kernel's file behind /dev/infiniband/uverbs0 does: the objects
// that were made through it, which every context imported from the descriptor shares (ibv_import_device(3)).
//
// Within a process that is so for all objects that can be imported. Between processes it is so for device
// memory: a protection domain or a memory region is of the process whose memory it opens.
//
// Thread-safe.
class CommandFile {
 public:
  static Result<std::shared_ptr<CommandFile>> create(const std::string& device);
  // The one that a descriptor leads to: this process's own, or another's, whose device memory it shares. The
  // descriptor stays the caller's. Errors: EBADF, EINVAL when it is no such descriptor.
  static Result<std::shared_ptr<CommandFile>> import(int fd);

  CommandFile(std::shared_ptr<DeviceMemoryFile> device_memory, bool foreign)
      : device_memory_(std::move(device_memory)), foreign_(foreign) {}

  // Another process made it.
  bool is_foreign() const { return foreign_; }

  const std::shared_ptr<DeviceMemoryFile>& device_memory() const { return device_memory_; }
  uint32_t next_handle() { return device_memory_->next_handle(); }

  // The contexts that share it, in no order. A context joins when it is open and leaves before it destroys
  // anything.
  void join(SoftwareContext& context);
  void leave(SoftwareContext& context);

  // Calls find(context) for one context after the other until one answers something.
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
