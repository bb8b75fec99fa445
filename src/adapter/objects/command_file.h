// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "adapter/objects/device_memory_file.h"

namespace verbena::adapter {

class SoftwareContext;

// The file behind a context's cmd_fd, as the kernel has one behind /dev/infiniband/uverbs0. All contexts
// imported from the descriptor (ibv_import_device(3)) share the objects that were created through it.
//
// Within a process, all kinds of objects that can be imported are shared. Between processes only device
// memory is: a protection domain or memory region belongs to the process whose memory it describes.
//
// Thread-safe.
class CommandFile {
 public:
  static Result<std::shared_ptr<CommandFile>> create(const std::string& device);
  // Finds or makes the CommandFile of a descriptor. It may be a file of this process, or of another process,
  // with which it shares only device memory. Does not take the descriptor. Errors: EBADF; EINVAL when it is
  // no cmd_fd.
  static Result<std::shared_ptr<CommandFile>> import(int fd);

  CommandFile(std::shared_ptr<DeviceMemoryFile> device_memory, bool foreign)
      : device_memory_(std::move(device_memory)), foreign_(foreign) {}

  // Whether another process created the file.
  bool is_foreign() const { return foreign_; }

  const std::shared_ptr<DeviceMemoryFile>& device_memory() const { return device_memory_; }
  uint32_t next_handle() { return device_memory_->next_handle(); }

  // Add and remove a context that shares the file. A context joins once it is open and leaves before it
  // destroys any object.
  void join(SoftwareContext& context);
  void leave(SoftwareContext& context);

  // Calls find(context) for the contexts in turn. Returns the first result that converts to true, else a
  // default-constructed one.
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
