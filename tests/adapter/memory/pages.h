// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <utility>

#include <sys/mman.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/unique_fd.h"

namespace verbena::memory {

inline size_t page_size() {
  return static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

// Pages that a test can unmap or protect.
class Pages {
 public:
  static Pages anonymous(size_t count, int protection = PROT_READ | PROT_WRITE) {
    return Pages(count, mmap(nullptr, count * page_size(), protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  }
  static Pages of_file(int fd, size_t count, int protection, int flags) {
    return Pages(count, mmap(nullptr, count * page_size(), protection, flags, fd, 0));
  }
  Pages(Pages&& other) noexcept : count_(other.count_), at_(std::exchange(other.at_, nullptr)) {}
  Pages& operator=(Pages&&) = delete;
  ~Pages() {
    if (at_ != nullptr) munmap(at_, count_ * page_size());
  }

  std::byte* data() const { return at_; }
  std::byte* page(size_t i) const { return at_ + i * page_size(); }
  size_t bytes() const { return count_ * page_size(); }
  // Removes access rights. Unlike unmap(), leaves no hole that another thread's mmap() could fill.
  void remove_rights(size_t i, int protection = PROT_NONE) const {
    mprotect(page(i), page_size(), protection);
  }
  void unmap(size_t i) const { munmap(page(i), page_size()); }

 private:
  Pages(size_t count, void* at) : count_(count), at_(static_cast<std::byte*>(at)) {
    if (at == MAP_FAILED) abort();
  }
  size_t count_;
  std::byte* at_;
};

inline UniqueFd memory_file(size_t pages) {
  UniqueFd fd(memfd_create("verbena-test", MFD_CLOEXEC));
  if (ftruncate(fd.get(), static_cast<off_t>(pages * page_size())) != 0) abort();
  return fd;
}

}  // namespace verbena::memory
