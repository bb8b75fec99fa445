// SPDX-License-Identifier: Apache-2.0
#include "preload/malloc/shared_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/detached_thread.h"

namespace verbena::heap {
namespace {

// Low numbers stay free, because programs count on them: a shell's `exec 3>file`, a test that counts
// descriptors.
constexpr int kOutOfTheWay = 960;

bool is_unlimited(__rlimit_resource resource) {
  rlimit limit;
  return ::getrlimit(resource, &limit) == 0 && limit.rlim_cur == RLIM_INFINITY;
}

// Whether resource limits permit the file. A file above the size limit would cause SIGXFSZ. Memory limits
// apply to private memory: shared memory would escape them, and a child's copies might have no room.
bool may_be_made() {
  return is_unlimited(RLIMIT_FSIZE) && is_unlimited(RLIMIT_AS) && is_unlimited(RLIMIT_DATA);
}

// Whether strict overcommit is on. The kernel then counts private memory when it is mapped, but shared memory
// when it is touched: exhaustion would cause SIGBUS instead of a null pointer.
bool is_counted_when_touched() {
  const int file = ::open("/proc/sys/vm/overcommit_memory", O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  char mode = 0;
  const bool read = ::read(file, &mode, 1) == 1;
  ::close(file);
  return read && mode == '2';
}

int make_file(uint64_t bytes) {
  const int low = ::memfd_create("verbena", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (low < 0) return -1;
  int file = ::fcntl(low, F_DUPFD_CLOEXEC, kOutOfTheWay);
  if (file >= 0) {
    ::close(low);
  } else {
    file = low;
  }
  // Seals the file, so that no process can truncate it while the program uses it.
  if (::ftruncate(file, static_cast<off_t>(bytes)) == 0 &&
      ::fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0) {
    return file;
  }
  ::close(file);
  return -1;
}

}  // namespace

bool SharedFile::open(uint64_t bytes) {
  if (!may_be_made() || is_counted_when_touched()) return false;
  const int file = make_file(bytes);
  struct stat made {};
  if (file < 0 || ::fstat(file, &made) != 0) return false;
  fd_ = file;
  device_ = made.st_dev;
  inode_ = made.st_ino;
  return true;
}

bool SharedFile::is_there() const {
  struct stat found {};
  return fd_ >= 0 && ::fstat(fd_, &found) == 0 && is(found.st_dev, found.st_ino);
}

bool SharedFile::map(void* at, uint64_t offset, uint64_t bytes) const {
  void* const mapped = ::mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, fd_,
                              static_cast<off_t>(offset));
  if (mapped == MAP_FAILED) return false;
  // A kernel before 4.17 treats the address as a hint. Another thread may have closed the descriptor just
  // now.
  if (mapped == at && is_there()) return true;
  ::munmap(mapped, bytes);
  errno = mapped == at ? EBADF : EEXIST;
  return false;
}

void SharedFile::discard(void* at, uint64_t offset, uint64_t bytes) const {
  // A sandbox may know no fallocate(2).
  if (is_there() && ::fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                                static_cast<off_t>(bytes)) == 0) {
    return;
  }
  ::madvise(at, bytes, MADV_REMOVE);
}

bool SharedFile::copy(std::byte* to, uint64_t offset, uint64_t bytes) const {
  const auto end = static_cast<off_t>(offset + bytes);
  for (auto at = static_cast<off_t>(offset);;) {
    at = ::lseek(fd_, at, SEEK_DATA);
    if (at < 0) return errno == ENXIO;  // no more data
    if (at >= end) return true;
    const off_t hole = ::lseek(fd_, at, SEEK_HOLE);
    if (hole < 0) return false;
    for (const off_t data_end = std::min(hole, end); at < data_end;) {
      const ssize_t copied =
          ::pread(fd_, to + (static_cast<uint64_t>(at) - offset), static_cast<size_t>(data_end - at), at);
      if (copied <= 0 && !(copied < 0 && errno == EINTR)) return false;
      at += std::max<ssize_t>(copied, 0);
    }
    if (at >= end) return true;
  }
}

void SharedFile::close() {
  if (is_there()) ::close(fd_);
  fd_ = -1;
}

namespace {

constexpr size_t kStackBytes = 256 << 10;

struct Call {
  bool (*function)(void*);
  void* argument;
};

int carry_out(void* given) {
  const Call& call = *static_cast<const Call*>(given);
  return call.function(call.argument) ? 0 : 1;
}

}  // namespace

bool run_on_other_stack(bool (*function)(void*), void* argument) {
  void* const stack =
      ::mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (stack == MAP_FAILED) return false;
  int status = -1;
  {
    const SignalsBlocked none;  // a signal handler of the program would run in both processes
    Call call{.function = function, .argument = argument};
    // The child's end sends no signal: a SIGCHLD handler of the program must not see a child that it did not
    // create. With CLONE_FILES the end closes no copies of the program's descriptors, which may take any
    // time.
    const pid_t other = ::clone(carry_out, static_cast<std::byte*>(stack) + kStackBytes,
                                CLONE_VM | CLONE_VFORK | CLONE_FILES, &call);
    while (other > 0 && ::waitpid(other, &status, __WCLONE) < 0 && errno == EINTR) {
    }
  }
  ::munmap(stack, kStackBytes);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

namespace {

// The default limit of mappings in a process (vm.max_map_count).
constexpr size_t kMaxStretches = 65536;

// Maps zeros, which use no memory before they are touched.
void* zeros(uint64_t bytes) {
  void* const at =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return at == MAP_FAILED ? nullptr : at;
}

bool is_zero(const std::byte* at, uint64_t bytes) {
  return at[0] == std::byte{0} && std::memcmp(at, at + 1, bytes - 1) == 0;
}

// Copies a range without the file's descriptor, through a second mapping, because the program's may not be
// readable. Reading untouched pages gives them memory in the file; zeros are not written to the copy.
bool copy_mapped(std::byte* to, std::byte* from, uint64_t bytes) {
  void* const second = ::mremap(from, 0, bytes, MREMAP_MAYMOVE);
  if (second == MAP_FAILED) return false;
  const bool readable = ::mprotect(second, bytes, PROT_READ) == 0;
  const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  const auto* const source = static_cast<const std::byte*>(second);
  for (uint64_t done = 0; readable && done < bytes; done += page) {
    if (!is_zero(source + done, page)) std::memcpy(to + done, source + done, page);
  }
  ::munmap(second, bytes);
  return readable;
}

}  // namespace

bool PrivateCopies::add(std::byte* at, uint64_t bytes, int protection) {
  if (stretches_ == nullptr) stretches_ = static_cast<Stretch*>(zeros(kMaxStretches * sizeof(Stretch)));
  if (stretches_ == nullptr || count_ == kMaxStretches) return false;
  stretches_[count_++] = {.at = at, .bytes = bytes, .protection = protection};
  bytes_ += bytes;
  return true;
}

bool PrivateCopies::make(const SharedFile& file, std::byte* window) {
  if (count_ == 0) return true;
  copies_ = static_cast<std::byte*>(zeros(bytes_));
  if (copies_ == nullptr) return false;
  std::byte* to = copies_;
  for (size_t i = 0; i < count_; ++i) {
    const Stretch& from = stretches_[i];
    const bool copied = file.is_there() ? file.copy(to, static_cast<uint64_t>(from.at - window), from.bytes)
                                        : copy_mapped(to, from.at, from.bytes);
    if (!copied) return false;
    to += from.bytes;
  }
  return true;
}

bool PrivateCopies::move_in() {
  std::byte* copy = copies_;
  for (size_t i = 0; i < count_; ++i) {
    const Stretch& to = stretches_[i];
    if (to.protection != (PROT_READ | PROT_WRITE) && ::mprotect(copy, to.bytes, to.protection) != 0)
      return false;
    if (::mremap(copy, to.bytes, to.bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to.at) != to.at) return false;
    copy += to.bytes;
  }
  copies_ = nullptr;
  return true;
}

void PrivateCopies::drop() {
  if (copies_ != nullptr) ::munmap(copies_, bytes_);
  if (stretches_ != nullptr) ::munmap(stretches_, kMaxStretches * sizeof(Stretch));
  *this = {};
}

}  // namespace verbena::heap
