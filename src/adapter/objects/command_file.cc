// SPDX-License-Identifier: Apache-2.0
#include "adapter/objects/command_file.h"

#include <algorithm>
#include <cerrno>

#include <fcntl.h>
#include <sys/stat.h>

#include "base/mutex_at_fork.h"
#include "base/same_file.h"

namespace verbena::adapter {
namespace {

// The command files of this process, for import(), which compares the identity of files.
struct OpenFiles {
  std::mutex mutex;
  std::vector<std::weak_ptr<CommandFile>> files;
};

OpenFiles& open_files() {
  static auto* the_files = new OpenFiles;  // never destroyed: threads outlive static objects
  return *the_files;
}

[[maybe_unused]] const int watched = lock_at_fork<[]() -> std::mutex& { return open_files().mutex; }>();

// REQUIRES: the mutex of `open` is held
void enter(OpenFiles& open, const std::shared_ptr<CommandFile>& file) {
  std::erase_if(open.files, [](const auto& weak) { return weak.expired(); });
  open.files.push_back(file);
}

}  // namespace

Result<std::shared_ptr<CommandFile>> CommandFile::create(const std::string& device) {
  auto memory = DeviceMemoryFile::create(device);
  if (!memory) return tl::unexpected(memory.error());
  auto file = std::make_shared<CommandFile>(std::make_shared<DeviceMemoryFile>(std::move(*memory)), false);
  OpenFiles& open = open_files();
  const std::lock_guard guard(open.mutex);
  enter(open, file);
  return file;
}

Result<std::shared_ptr<CommandFile>> CommandFile::import(int fd) {
  struct stat wanted {};
  if (::fstat(fd, &wanted) != 0) return fail(errno);
  OpenFiles& open = open_files();
  const std::lock_guard guard(open.mutex);
  for (const auto& weak : open.files) {
    const auto file = weak.lock();
    struct stat is {};
    if (file && ::fstat(file->device_memory_->fd(), &is) == 0 && is_same_file(is, wanted)) return file;
  }
  UniqueFd own(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!own) return fail(errno);
  auto memory = DeviceMemoryFile::open(std::move(own));
  if (!memory) return tl::unexpected(memory.error());
  auto file = std::make_shared<CommandFile>(std::make_shared<DeviceMemoryFile>(std::move(*memory)), true);
  enter(open, file);
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
