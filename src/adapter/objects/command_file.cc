// SPDX-License-Identifier: Apache-2.0
#include "adapter/objects/command_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <linux/udmabuf.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/failed_call.h"
#include "base/mutex_at_fork.h"
#include "base/same_file.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

namespace verbena::adapter {
namespace {

constexpr uint64_t kMagic = 0x31'6d64'616e'6562'72;  // "rbenadm1", which changes with the layout
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// Creates the memfd. Kernels before 6.3 do not know MFD_NOEXEC_SEAL; some newer ones allow no memfd without
// it.
int make_memory_file() {
  const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  const int fd = ::memfd_create("verbena-device", flags | MFD_NOEXEC_SEAL);
  return fd >= 0 || errno != EINVAL ? fd : ::memfd_create("verbena-device", flags);
}

// Whether the process may have a file of this size. Growing one beyond RLIMIT_FSIZE would raise SIGXFSZ,
// which kills it.
bool may_grow_to(uint64_t bytes) {
  rlimit limit{};
  return ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur >= bytes;
}

uint64_t pages_of(uint64_t length) {
  return (length + DeviceMemoryFile::kPageBytes - 1) / DeviceMemoryFile::kPageBytes;
}

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

Result<DeviceMemoryFile> DeviceMemoryFile::create(const std::string& device) {
  DeviceMemoryFile file;
  file.fd_ = OwnFd::with_known_number(UniqueFd(make_memory_file()));
  if (!file.fd_) return fail(errno);
  file.capacity_ = may_grow_to(kMemoryAt + kBytes) ? kBytes : 0;
  file.device_ = device;
  const int fd = file.capacity_ > 0 ? file.fd() : -1;
  if (fd >= 0) {
    if (::ftruncate(fd, static_cast<off_t>(kMemoryAt + kBytes)) != 0) return fail(errno);
    if (::fcntl(fd, F_ADD_SEALS, kSeals) != 0) return fail(errno);
  }
  auto mapping = fd >= 0 ? memory::FileMapping::create(fd, 0, kMemoryAt, true)
                         : memory::FileMapping::anonymous(kMemoryAt);
  if (!mapping) return tl::unexpected(mapping.error());
  file.mapping_ = std::move(*mapping);
  Table& table = file.table();
  table.magic = kMagic;
  device.copy(table.device, sizeof table.device - 1);
  return file;
}

Result<DeviceMemoryFile> DeviceMemoryFile::open(UniqueFd fd) {
  struct stat about {};
  if (::fstat(fd.get(), &about) != 0) return fail(errno);
  // A sealed file cannot shrink while it is mapped here.
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals || about.st_size != static_cast<off_t>(kMemoryAt + kBytes))
    return fail(EINVAL);
  auto mapping = memory::FileMapping::create(fd.get(), 0, kMemoryAt, true);
  if (!mapping) return fail(EINVAL);
  DeviceMemoryFile file;
  file.fd_ = OwnFd::with_known_number(std::move(fd));
  file.mapping_ = std::move(*mapping);
  file.capacity_ = kBytes;
  const Table& table = file.table();
  if (table.magic != kMagic) return fail(EINVAL);
  file.device_.assign(table.device, ::strnlen(table.device, sizeof table.device));
  return file;
}

// Claims pages one by one, without a lock that a process could hold when it dies. False: one of them is not
// free.
bool DeviceMemoryFile::claim(uint64_t first, uint64_t pages, uint32_t owner) {
  for (uint64_t i = 0; i < pages; ++i) {
    uint32_t free_page = 0;
    if (table().owners[first + i].compare_exchange_strong(free_page, owner)) continue;
    release(first, i);
    return false;
  }
  return true;
}

void DeviceMemoryFile::release(uint64_t first, uint64_t pages) {
  for (uint64_t i = 0; i < pages; ++i) table().owners[first + i].store(0);
}

Result<DeviceMemoryFile::Allocation> DeviceMemoryFile::allocate(uint64_t length, uint32_t handle) {
  if (length > capacity_) return fail(ENOMEM);
  const uint64_t pages = pages_of(length);
  uint64_t run = 0;
  for (uint64_t page = 0; page < kPages; ++page) {
    run = table().owners[page].load(std::memory_order_relaxed) == 0 ? run + 1 : 0;
    if (run < pages) continue;
    const uint64_t first = page + 1 - pages;
    if (!claim(first, pages, handle + 1)) {
      run = 0;
      continue;
    }
    const Allocation allocation{first * kPageBytes, length};
    // Allocates all memory now: later, at an access, nobody could be told that there is none.
    if (!fd_.is_ours() || ::fallocate(fd(), 0, static_cast<off_t>(kMemoryAt + allocation.offset),
                                      static_cast<off_t>(pages * kPageBytes)) != 0) {
      free(allocation);
      return fail(ENOMEM);
    }
    table().lengths[first].store(length, std::memory_order_release);
    return allocation;
  }
  return fail(ENOMEM);
}

void DeviceMemoryFile::free(const Allocation& allocation) {
  const uint64_t first = allocation.offset / kPageBytes;
  const uint64_t pages = pages_of(allocation.length);
  table().lengths[first].store(0);
  if (fd_.is_ours()) {
    ::fallocate(fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                static_cast<off_t>(kMemoryAt + allocation.offset), static_cast<off_t>(pages * kPageBytes));
  }
  release(first, pages);
}

Result<DeviceMemoryFile::Allocation> DeviceMemoryFile::find(uint32_t handle) const {
  for (uint64_t page = 0; page < kPages; ++page) {
    if (table().owners[page].load(std::memory_order_acquire) != handle + 1) continue;
    const uint64_t length = table().lengths[page].load(std::memory_order_acquire);
    if (length == 0 || length > kBytes - page * kPageBytes) break;
    return Allocation{page * kPageBytes, length};
  }
  return fail(ENOENT);
}

Result<memory::FileMapping> DeviceMemoryFile::map(const Allocation& allocation) const {
  if (!fd_.is_ours()) return fail(EBADF);
  return memory::FileMapping::create(fd(), kMemoryAt + allocation.offset, allocation.length, true);
}

// The kernel keeps the pages for as long as the dma-buf lives, even when they are freed here. It accepts only
// files that cannot shrink, which the seals ensure.
Result<UniqueFd> DeviceMemoryFile::export_dma_buf(const Allocation& allocation) const {
  if (!fd_.is_ours()) return fail(EBADF);
  const UniqueFd device(::open("/dev/udmabuf", O_RDWR | O_CLOEXEC));
  if (!device)
    return fail(because(EOPNOTSUPP, "/dev/udmabuf, which makes dma-bufs of memory, cannot be opened: {}",
                        std::strerror(errno)));
  udmabuf_create range{};
  range.memfd = static_cast<uint32_t>(fd());
  range.flags = UDMABUF_FLAGS_CLOEXEC;
  range.offset = kMemoryAt + allocation.offset;
  range.size = pages_of(allocation.length) * kPageBytes;
  UniqueFd exported(::ioctl(device.get(), UDMABUF_CREATE, &range));
  if (!exported) return fail(because(errno, "/dev/udmabuf makes no dma-buf of {} bytes", range.size));
  return exported;
}

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

}  // namespace verbena::adapter
