// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include "base/unique_fd.h"

namespace verbena {

// Owns a descriptor that our library keeps in the application's process, and detects if its number has come
// to refer to another file. Daemons close all descriptors (close_range(2)), and some programs close a
// descriptor twice. Our number may then be reused for a file of the application, which we must neither read,
// write nor close.
//
// Two measures help. The descriptor is moved up, to a number of at least half of RLIMIT_NOFILE or 1024,
// whichever is lower. The kernel gives new files the lowest free number, so the high number is rarely reused.
// And is_ours() compares an identity of the file that the kernel reports. A descriptor whose number was
// reused is not closed.
//
// One thread at a time, except that other threads may call get() during settle().
class OwnFd {
 public:
  OwnFd() = default;
  // Takes a descriptor and moves it up, if there is room. An epoll set that already has the descriptor does
  // not follow the move.
  OwnFd(UniqueFd fd);  // NOLINT(google-explicit-constructor)
  // Takes a descriptor without moving it up, because the application knows its number.
  static OwnFd with_known_number(UniqueFd fd) { return OwnFd(std::move(fd), true); }
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

  // Whether the number still refers to our file; false if the object is empty. True if the kernel reported no
  // identity for the file. At most one system call, which blocks for no kind of file.
  bool is_ours() const;
  // Closes the descriptor if its number still refers to our file. The object is empty then.
  void reset() { take().reset(); }
  // Releases the descriptor to the caller. Returns an empty UniqueFd if the number no longer refers to our
  // file.
  UniqueFd take();
  // Makes the number refer to a copy of `other` (dup3(2)), if the number still refers to our file.
  void become(const UniqueFd& other);
  // Returns is_ours(). Makes the object empty if the number no longer refers to our file.
  bool settle();

 private:
  // The identity of a file. For a socket, its cookie (SO_COOKIE). For an anonymous file such as an eventfd,
  // the unused signal number that make_mark() has set (F_SETSIG). For other files, device and inode.
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
