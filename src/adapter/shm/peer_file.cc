// SPDX-License-Identifier: Apache-2.0
#include "adapter/shm/peer_file.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/format.h"

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

}  // namespace verbena::engine
