// SPDX-License-Identifier: Apache-2.0
#include "adapter/command_file.h"

#include <algorithm>
#include <cerrno>

#include <fcntl.h>
#include <sys/stat.h>

namespace verbena::adapter {
namespace {

// Those of this process, by identity of the file.
struct Registry {
  std::mutex mutex;
  std::vector<std::weak_ptr<CommandFile>> files;
};

Registry& registry() {
  static auto* the_registry = new Registry;  // never destroyed: threads outlive static objects
  return *the_registry;
}

bool same_file(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

// REQUIRES: the registry's mutex is held
void enter(Registry& registered, const std::shared_ptr<CommandFile>& file) {
  std::erase_if(registered.files, [](const auto& weak) { return weak.expired(); });
  registered.files.push_back(file);
}

}  // namespace

Result<std::shared_ptr<CommandFile>> CommandFile::create(const std::string& device) {
  auto memory = DeviceMemoryFile::create(device);
  if (!memory) return tl::unexpected(memory.error());
  auto file = std::make_shared<CommandFile>(std::make_shared<DeviceMemoryFile>(std::move(*memory)), false);
  Registry& registered = registry();
  const std::lock_guard guard(registered.mutex);
  enter(registered, file);
  return file;
}

Result<std::shared_ptr<CommandFile>> CommandFile::import(int fd) {
  struct stat wanted {};
  if (::fstat(fd, &wanted) != 0) return fail(errno);
  Registry& registered = registry();
  const std::lock_guard guard(registered.mutex);
  for (const auto& weak : registered.files) {
    const auto file = weak.lock();
    struct stat is {};
    if (file && ::fstat(file->device_memory_->fd(), &is) == 0 && same_file(is, wanted)) return file;
  }
  UniqueFd own(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!own) return fail(errno);
  auto memory = DeviceMemoryFile::open(std::move(own));
  if (!memory) return tl::unexpected(memory.error());
  auto file = std::make_shared<CommandFile>(std::make_shared<DeviceMemoryFile>(std::move(*memory)), true);
  enter(registered, file);
  return file;
}

void CommandFile::join(SoftwareContext& context) {
  const std::lock_guard guard(mutex_);
  contexts_.push_back(&context);
}

void CommandFile::leave(SoftwareContext& context) {
  const std::lock_guard guard(mutex_);
  std::erase(contexts_, &context);
}

}  // namespace verbena::adapter
