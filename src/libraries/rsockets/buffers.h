// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>

#include <sys/uio.h>

#include "base/bulk_copy.h"

namespace verbena::rsockets {

// A cursor over the application's list of buffers (struct iovec): reads or writes them from beginning to end.
// Refers to the list, which must outlive the cursor. Not thread-safe.
class Buffers {
 public:
  Buffers(const iovec* pieces, size_t count) : piece_(pieces), left_(count) {
    for (size_t i = 0; i < count; ++i) bytes_ += pieces[i].iov_len;
    settle();
  }

  // The number of bytes that are still ahead of the cursor.
  size_t size() const { return bytes_; }
  // Return the address and the number of the bytes from the cursor to the end of the current buffer. At the
  // end of the list, return nullptr and 0.
  std::byte* data() const { return left_ == 0 ? nullptr : static_cast<std::byte*>(piece_->iov_base) + at_; }
  size_t in_a_row() const { return left_ == 0 ? 0 : piece_->iov_len - at_; }

  // Advances the cursor. REQUIRES: bytes <= in_a_row()
  void skip(size_t bytes) {
    at_ += bytes;
    bytes_ -= bytes;
    settle();
  }
  // read() copies bytes from the buffers to `to`; write() copies bytes from `from` into the buffers. Both
  // advance the cursor. REQUIRES: bytes <= size()
  void read(void* to, size_t bytes) {
    for (auto* at = static_cast<std::byte*>(to); bytes > 0;) {
      const size_t part = std::min(bytes, in_a_row());
      copy_bulk(at, data(), part);
      skip(part);
      at += part;
      bytes -= part;
    }
  }
  void write(const void* from, size_t bytes) {
    for (const auto* at = static_cast<const std::byte*>(from); bytes > 0;) {
      const size_t part = std::min(bytes, in_a_row());
      copy_bulk(data(), at, part);
      skip(part);
      at += part;
      bytes -= part;
    }
  }

 private:
  void settle() {
    while (left_ > 0 && at_ == piece_->iov_len) {
      ++piece_;
      --left_;
      at_ = 0;
    }
  }

  const iovec* piece_;
  size_t left_;
  size_t at_ = 0;
  size_t bytes_ = 0;
};

}  // namespace verbena::rsockets
