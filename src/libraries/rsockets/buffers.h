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

  // Returns the number of bytes from the cursor to the end of the list.
  size_t size() const { return bytes_; }
  // data() returns the address of the byte at the cursor. in_a_row() returns the number of bytes from the
  // cursor to the end of the current buffer. At the end of the list, they return nullptr and 0.
  std::byte* data() const { return left_ == 0 ? nullptr : static_cast<std::byte*>(piece_->iov_base) + at_; }
  size_t in_a_row() const { return left_ == 0 ? 0 : piece_->iov_len - at_; }

  // skip() advances the cursor. read() also copies the bytes to `to`; write() also copies bytes from `from`
  // into the buffers. REQUIRES: bytes <= size()
  void skip(size_t bytes) {
    for_parts(bytes, [](size_t, size_t) {});
  }
  void read(void* to, size_t bytes) {
    for_parts(bytes,
              [&](size_t done, size_t part) { copy_bulk(static_cast<std::byte*>(to) + done, data(), part); });
  }
  void write(const void* from, size_t bytes) {
    for_parts(bytes, [&](size_t done, size_t part) {
      copy_bulk(data(), static_cast<const std::byte*>(from) + done, part);
    });
  }

 private:
  // Splits the next `bytes` bytes into parts that lie in one buffer each, calls action(done, part) for each
  // part, and skips the part. `done` is the number of bytes before the part, `part` its length.
  template <class Action>
  void for_parts(size_t bytes, Action action) {
    for (size_t done = 0; done < bytes;) {
      const size_t part = std::min(bytes - done, in_a_row());
      action(done, part);
      at_ += part;
      bytes_ -= part;
      settle();
      done += part;
    }
  }
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
