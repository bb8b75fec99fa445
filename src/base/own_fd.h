// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include "base/unique_fd.h"

namespace verbena {

// Owns a descriptor that we keep in the application's process, and detects if the number has come to refer to
// another file. Daemons close all descriptors (close_range(2)), and some programs close one twice. Then the
// number may be reused for the application's file, which we must neither read, write nor close.
//
// Two measures help. The descriptor is moved up, to numbers from half of RLIMIT_NOFILE on (from 1024 at
// most), because the kernel gives new files the lowest free number. And is_ours() compares an identity of the
// file that the kernel reports. A descriptor whose number was reused is not closed.
//
// One thread at a time, except that other threads may call get() during settle().
class OwnFd {
 public:
  OwnFd() = default;
  // Moves the descriptor up, if there is room. This changes its identity in epoll sets.
  OwnFd(UniqueFd fd);  // NOLINT(google-explicit-constructor)
  // Takes a descriptor without moving it to the upper half, because the application knows its number.
  static OwnFd with_known_number(UniqueFd fd);
  OwnFd(OwnFd&& other) noexcept : fd_(other.fd_.exchange(-1)), mark_(other.mark_) {}
  OwnFd& operator=(OwnFd&& other) noexcept {
    if (this == &other) return *this;
    reset();
    fd_ = other.fd_.exchange(-1);
    mark_ = other.mark_;
    return *this;
  }
  ~OwnFd() { reset(); }

  int get() const { return fd_.load(std::memory_order_relaxed); }
  explicit operator bool() const { return get() >= 0; }

  // Whether the number still refers to our file. One system call, which blocks for no kind of file. False if
  // empty.
  bool is_ours() const;
  // Closes it, if it is ours.
  void reset();
  // Releases the descriptor. Empty if the number is not ours any more.
  UniqueFd take();
  // Makes the number refer to a copy of `other` (dup3).
  void become(const UniqueFd& other);
  // Becomes empty if the number is not ours any more. Returns whether it is still ours.
  bool settle();

 private:
  // The identity of a file.
  struct Mark {
    enum Kind : uint8_t { kNone, kSocket, kAnonymous, kFile };
    Kind kind = kNone;
    uint64_t identity[2] = {};
    friend bool operator==(const Mark&, const Mark&) = default;
  };
  OwnFd(UniqueFd fd, bool keeps_number);
  static Mark make_mark(int fd);
  static Mark read_mark(int fd, Mark::Kind kind);

  std::atomic<int> fd_{-1};
  Mark mark_;
};

}  // namespace verbena
