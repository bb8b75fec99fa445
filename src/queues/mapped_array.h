// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <utility>

#include <sys/mman.h>

#include "base/result.h"

namespace verbena::queues {

// A zeroed stretch of memory that costs nothing until touched: rings are created as large as the application
// asks, which is often far larger than what it uses.
class MappedArray {
 public:
  static Result<MappedArray> create(size_t bytes) {
    void* at =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return fail(ENOMEM);
    return MappedArray(static_cast<std::byte*>(at), bytes);
  }

  MappedArray() = default;
  MappedArray(MappedArray&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  MappedArray& operator=(MappedArray&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~MappedArray() {
    if (data_ != nullptr) ::munmap(data_, bytes_);
  }

  std::byte* data() const { return data_; }
  size_t size() const { return bytes_; }

 private:
  MappedArray(std::byte* data, size_t bytes) : data_(data), bytes_(bytes) {}

  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace verbena::queues
