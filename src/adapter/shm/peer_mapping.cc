// SPDX-License-Identifier: Apache-2.0
#include "adapter/shm/peer_mapping.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <sys/ipc.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/format.h"
#include "base/same_file.h"

namespace verbena::engine {

namespace {

// More are not looked through.
constexpr int kMaxFiles = 4096;

UniqueFd open_in(int folder, const char* path, int flags) {
  return UniqueFd(::openat(folder, path, flags | O_CLOEXEC));
}

// Without ever waiting: what the kernel has not at hand is not there. It has the paths of files that are
// mapped at hand.
UniqueFd find_at_hand(const char* path) {
  open_how how{};
  how.flags = O_PATH | O_CLOEXEC | O_NOFOLLOW;
  how.resolve = RESOLVE_CACHED;  // Linux 5.12
  return UniqueFd(static_cast<int>(::syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how)));
}

bool lies_in_memory(int file) {
  struct statfs system {};
  if (::fstatfs(file, &system) != 0) return false;
  const auto type = static_cast<uint64_t>(system.f_type);
  return type == TMPFS_MAGIC || type == HUGETLBFS_MAGIC;
}

// What was found by O_PATH, opened: only if it is the file.
UniqueFd open_if(const UniqueFd& found, const SharedStretch& stretch) {
  struct stat seen {};
  if (!found || ::fstat(found.get(), &seen) != 0 || !S_ISREG(seen.st_mode)) return {};
  if (FileIdentity{seen.st_dev, seen.st_ino} != stretch.file || !lies_in_memory(found.get())) return {};
  const std::string path = verbena::format("/proc/self/fd/{}", found.get());
  return open_in(AT_FDCWD, path.c_str(), stretch.writable ? O_RDWR : O_RDONLY);
}

class Folder {
 public:
  explicit Folder(UniqueFd opened) : folder_(::fdopendir(opened.get())) {
    if (folder_ != nullptr) (void)opened.release();
  }
  ~Folder() {
    if (folder_ != nullptr) ::closedir(folder_);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const dirent* next() {
    return folder_ != nullptr ? ::readdir(folder_)
                              : nullptr;  // NOLINT(concurrency-mt-unsafe): our own stream
  }
  int fd() const { return ::dirfd(folder_); }

 private:
  DIR* const folder_;
};

// Their names are compared first: to look at some other file might wait for a server.
UniqueFd open_of_its_files(const ProcessFolder& process, const SharedStretch& stretch) {
  Folder files(process.open("fd", O_RDONLY | O_DIRECTORY));
  std::array<char, 4096> name;
  for (int i = 0; i < kMaxFiles; ++i) {
    const dirent* const entry = files.next();
    if (entry == nullptr) break;
    const ssize_t bytes = ::readlinkat(files.fd(), entry->d_name, name.data(), name.size());
    if (bytes <= 0 || std::string_view(name.data(), static_cast<size_t>(bytes)) != stretch.path) continue;
    UniqueFd opened = open_if(open_in(files.fd(), entry->d_name, O_PATH), stretch);
    if (opened) return opened;
  }
  return {};
}

}  // namespace

Result<UniqueFd> open_peer_file(const ProcessFolder& process, const SharedStretch& stretch, dev_t internal) {
  UniqueFd opened = open_if(find_at_hand(stretch.path.c_str()), stretch);
  if (!opened) opened = open_of_its_files(process, stretch);
  if (!opened && stretch.file.device == internal) {  // the kernel lets only root do so
    const std::string path =
        verbena::format("map_files/{:x}-{:x}", stretch.mapping_begin, stretch.mapping_end);
    opened = open_if(process.open(path.c_str(), O_PATH), stretch);
  }
  if (!opened) return fail(ENOENT);
  return opened;
}

uint64_t mapping_unit(int file) {
  struct statfs system {};
  const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  if (::fstatfs(file, &system) != 0 || static_cast<uint64_t>(system.f_type) != HUGETLBFS_MAGIC) return page;
  return static_cast<uint64_t>(system.f_bsize);
}

namespace {

bool holds(int file, uint64_t end) {
  struct stat found {};
  return ::fstat(file, &found) == 0 && found.st_size >= 0 && static_cast<uint64_t>(found.st_size) >= end;
}

}  // namespace

// A file first: to map it changes nothing that others see, whereas segments count who has them.
Result<PeerMapping> map_peer_memory(const ProcessFolder& process, const SharedStretch& stretch,
                                    uint64_t length, dev_t internal) {
  const auto file = open_peer_file(process, stretch, internal);
  if (!file) return attach_peer_segment(process, stretch, length);
  if (!holds(file->get(), stretch.offset + length)) return fail(EINVAL);
  auto memory = memory::FileMapping::create(file->get(), stretch.offset, length, stretch.writable,
                                            mapping_unit(file->get()));
  if (!memory) return tl::unexpected(memory.error());
  return PeerMapping{std::move(*memory), stretch.writable};
}

namespace {

// A thread may be in another namespace than its process.
bool shares_our_namespace(const ProcessFolder& process) {
  struct stat ours {};
  const auto theirs = process.look_at("ns/ipc");
  if (!theirs || ::stat("/proc/thread-self/ns/ipc", &ours) != 0) return false;
  return is_same_file(ours, *theirs);
}

// A whole segment; detached unless taken over.
class Attachment {
 public:
  Attachment(int segment, bool writable) : at_(::shmat(segment, nullptr, writable ? 0 : SHM_RDONLY)) {
    if (!*this) error_ = errno;
  }
  ~Attachment() {
    if (*this) ::shmdt(at_);
  }
  Attachment(const Attachment&) = delete;
  Attachment& operator=(const Attachment&) = delete;
  explicit operator bool() const { return at_ != reinterpret_cast<void*>(-1); }
  int error() const { return error_; }

  uint64_t begin() const { return reinterpret_cast<uintptr_t>(at_); }
  // What the kernel shows of it.
  std::optional<SharedStretch> shown() const {
    const auto ourselves = ProcessFolder::open(::getpid());
    if (!ourselves) return std::nullopt;
    const auto map = ProcessMap::read(*ourselves);
    return map ? map->find(begin(), begin() + 1) : std::nullopt;
  }
  memory::FileMapping take_over(uint64_t bytes) {
    return memory::FileMapping::adopt(std::exchange(at_, reinterpret_cast<void*>(-1)), bytes);
  }

 private:
  void* at_;
  int error_ = 0;
};

Result<memory::FileMapping> attach(int segment, const SharedStretch& stretch, uint64_t length,
                                   bool writable) {
  Attachment attachment(segment, writable);
  if (!attachment) return fail(attachment.error());
  const auto shown = attachment.shown();
  const bool is_it = shown && shown->file == stretch.file && shown->path == stretch.path &&
                     shown->offset == 0 && shown->mapping_begin == attachment.begin();
  if (!is_it) return fail(ENOENT);
  const uint64_t bytes = shown->mapping_end - shown->mapping_begin;
  if (stretch.offset > bytes || length > bytes - stretch.offset) return fail(ENOENT);
  memory::FileMapping mapping = attachment.take_over(bytes);
  mapping.narrow(stretch.offset, length);
  return mapping;
}

}  // namespace

Result<PeerMapping> attach_peer_segment(const ProcessFolder& process, const SharedStretch& stretch,
                                        uint64_t length) {
  const auto segment = segment_behind(stretch);
  if (!segment || !shares_our_namespace(process)) return fail(ENOENT);
  bool writable = stretch.writable;
  auto mapping = attach(*segment, stretch, length, writable);
  if (!mapping && mapping.error().code == EACCES && writable) {
    writable = false;
    mapping = attach(*segment, stretch, length, writable);
  }
  if (!mapping) return tl::unexpected(mapping.error());
  return PeerMapping{std::move(*mapping), writable};
}

}  // namespace verbena::engine
