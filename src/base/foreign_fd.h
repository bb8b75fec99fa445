// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <utility>

#include "base/unique_fd.h"

namespace verbena {

// The maximum number of descriptors that wait to be closed. Beyond it, discard() logs a warning and leaves
// the descriptor open for good.
inline constexpr size_t kMaxDiscarded = 1024;

// Closes a descriptor that came from another process, on a background thread. close() of an unknown file may
// block as long as the other process wishes: a TCP socket with SO_LINGER, or a file whose server does not
// answer. The thread is started on demand and ends when nothing is left to close. Neither the caller nor the
// exit of the process waits for the thread. A child after fork() starts its own thread.
//
// Thread-safe. Never blocks; no cancellation point.
void discard(UniqueFd fd);

// Returns the number of descriptors that wait to be closed, without the one that is being closed. Waiting
// descriptors still count against RLIMIT_NOFILE. Thread-safe.
size_t discarding();

// Owns a descriptor that came from another process and may refer to any kind of file. Closing it may block,
// so the destructor passes it to discard(). Only use calls that block for no kind of file: fcntl(F_GET_SEALS)
// before fstat(2), which may ask a file server; getsockopt(SO_DOMAIN) before any other socket call.
class ForeignFd {
 public:
  ForeignFd() = default;
  explicit ForeignFd(UniqueFd fd) : fd_(std::move(fd)) {}
  ForeignFd(ForeignFd&&) = default;
  ForeignFd& operator=(ForeignFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~ForeignFd() { discard(std::move(fd_)); }

  int get() const { return fd_.get(); }
  explicit operator bool() const { return static_cast<bool>(fd_); }

  // Releases the descriptor to the caller. REQUIRES: the caller knows that close() of this file does not
  // block, as for a memfd
  UniqueFd take_known() { return std::move(fd_); }

 private:
  UniqueFd fd_;
};

}  // namespace verbena
