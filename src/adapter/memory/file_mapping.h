// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstdint>
#include <utility>

#include <sys/mman.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/result.h"

namespace verbena::memory {

// A range of a file, mapped into this process's memory (MAP_SHARED); the destructor unmaps the range. adopt()
// also takes an attached System V segment, which is a file to the kernel: unmapping all its pages detaches
// it.
class FileMapping {
 public:
  // Maps a range of a file, which may begin at any offset. Errors: those of mmap(2). REQUIRES: length > 0,
  // offset + length does not wrap
  static Result<FileMapping> create(int fd, uint64_t offset, uint64_t length, bool writable) {
    return create(fd, offset, length, writable, static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)));
  }
  // Like create() above, for a file with pages of `page` bytes.
  static Result<FileMapping> create(int fd, uint64_t offset, uint64_t length, bool writable, uint64_t page) {
    const uint64_t skipped = offset % page;
    FileMapping mapping;
    mapping.mapped_ = (skipped + length + page - 1) / page * page;
    const int protection = PROT_READ | (writable ? PROT_WRITE : 0);
    void* at =
        ::mmap(nullptr, mapping.mapped_, protection, MAP_SHARED, fd, static_cast<off_t>(offset - skipped));
    if (at == MAP_FAILED) return fail(errno);
    mapping.at_ = static_cast<std::byte*>(at);
    mapping.skipped_ = skipped;
    return mapping;
  }

  // Maps private zeroed memory, for a caller that has no file to map. Errors: those of mmap(2).
  static Result<FileMapping> anonymous(uint64_t length) {
    FileMapping mapping;
    mapping.mapped_ = length;
    void* at = ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return fail(errno);
    mapping.at_ = static_cast<std::byte*>(at);
    return mapping;
  }

  // Takes over an existing mapping, which the destructor unmaps. REQUIRES: `at` and `bytes` are whole pages
  static FileMapping adopt(void* at, uint64_t bytes) {
    FileMapping mapping;
    mapping.at_ = static_cast<std::byte*>(at);
    mapping.mapped_ = bytes;
    return mapping;
  }

  FileMapping() = default;
  FileMapping(FileMapping&& other) noexcept
      : at_(std::exchange(other.at_, nullptr)), mapped_(other.mapped_), skipped_(other.skipped_) {}
  FileMapping& operator=(FileMapping&& other) noexcept {
    std::swap(at_, other.at_);
    std::swap(mapped_, other.mapped_);
    std::swap(skipped_, other.skipped_);
    return *this;
  }
  ~FileMapping() {
    if (at_ != nullptr) ::munmap(at_, mapped_);
  }

  // Unmaps the pages outside [offset, offset + length) of the mapping. Then data() points to the byte that
  // was at `offset`. Pages larger than the system's may stay mapped: see bytes(). REQUIRES: offset + length
  // <= bytes(), length > 0, the mapping was adopted and not narrowed before
  void narrow(uint64_t offset, uint64_t length) {
    const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
    const uint64_t end = (offset + length + page - 1) / page * page;
    if (end < mapped_ && ::munmap(at_ + end, mapped_ - end) == 0) mapped_ = end;
    const uint64_t begin = offset / page * page;
    skipped_ = offset;
    if (begin == 0 || ::munmap(at_, begin) != 0) return;
    at_ += begin;
    mapped_ -= begin;
    skipped_ -= begin;
  }

  // Keeps the mapping out of core dumps: its bytes belong to another process.
  void keep_out_of_dumps() const { ::madvise(at_, mapped_, MADV_DONTDUMP); }

  // Returns the number of bytes mapped: the range and the rest of its pages; 0 if nothing is mapped.
  uint64_t bytes() const { return at_ != nullptr ? mapped_ : 0; }
  // Returns the start of the range; nullptr if nothing is mapped.
  std::byte* data() const { return at_ != nullptr ? at_ + skipped_ : nullptr; }

 private:
  std::byte* at_ = nullptr;
  uint64_t mapped_ = 0;
  uint64_t skipped_ = 0;  // bytes of the first page before the range
};

// Maps bytes [offset, offset + length) of a dma-buf. Fails as ibv_reg_dmabuf_mr(3) does in the kernel.
// Errors: EBADF if `fd` is not a descriptor. EINVAL if it is not a dma-buf, or if the range is empty or
// leaves the buffer. EOPNOTSUPP if the driver that exports the buffer cannot map it for the CPU. EACCES if
// `writable` is true and the descriptor is not open for writing. ENOMEM, EAGAIN.
Result<FileMapping> map_dma_buf(int fd, uint64_t offset, uint64_t length, bool writable);

}  // namespace verbena::memory
