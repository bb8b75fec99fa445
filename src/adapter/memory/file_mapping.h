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

// A stretch of a file in this process's memory, shared with all who map it; of a file that can be mapped, or
// of a System V segment, which is a file to the kernel: unmapped it is detached.
class FileMapping {
 public:
  // Errors: those of mmap(2). The stretch may begin anywhere. REQUIRES: length > 0, offset + length does not
  // wrap
  static Result<FileMapping> create(int fd, uint64_t offset, uint64_t length, bool writable) {
    return create(fd, offset, length, writable, static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)));
  }
  // The same of a file whose pages are so large.
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

  // Zeros of this process's own, where no file can be mapped.
  static Result<FileMapping> anonymous(uint64_t length) {
    FileMapping mapping;
    mapping.mapped_ = length;
    void* at = ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return fail(errno);
    mapping.at_ = static_cast<std::byte*>(at);
    return mapping;
  }

  // What has been mapped otherwise, from here on ours. REQUIRES: whole pages
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

  // Unmaps what is not of these bytes. Pages of some sizes stay whole, or all of them: bytes() tells.
  // REQUIRES: offset + length <= bytes(), length > 0, data() is as it was adopted
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

  // Its bytes are another's: they do not belong into a dump of this process.
  void keep_out_of_dumps() const { ::madvise(at_, mapped_, MADV_DONTDUMP); }

  // How many are mapped: the stretch and what its pages hold beside.
  uint64_t bytes() const { return at_ != nullptr ? mapped_ : 0; }
  // Where the stretch begins; nullptr when nothing is mapped.
  std::byte* data() const { return at_ != nullptr ? at_ + skipped_ : nullptr; }

 private:
  std::byte* at_ = nullptr;
  uint64_t mapped_ = 0;
  uint64_t skipped_ = 0;  // of the first page
};

}  // namespace verbena::memory
