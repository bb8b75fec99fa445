// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "base/discard.h"
#include "base/unique_fd.h"

namespace verbena {

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
