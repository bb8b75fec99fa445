// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include <sys/syscall.h>
#include <unistd.h>

#if defined(__SANITIZE_THREAD__)
extern "C" void __sanitizer_syscall_pre_impl_close(long fd);
#endif

namespace verbena {

// Owns a file descriptor, and closes it by a bare system call. The C library's close() is a cancellation
// point, but a destructor cannot be unwound, and the caller may hold locks.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) reset(std::exchange(other.fd_, -1));
    return *this;
  }
  ~UniqueFd() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1) {
    if (fd_ >= 0) close_now();
    fd_ = fd;
  }

 private:
  void close_now() {
#if defined(__SANITIZE_THREAD__)
    // The sanitizer tracks descriptors by C library calls. Without this, our close and another thread's reuse
    // of the number would be reported as a race.
    __sanitizer_syscall_pre_impl_close(fd_);
#endif
    ::syscall(SYS_close, fd_);
  }

  int fd_ = -1;
};

}  // namespace verbena
