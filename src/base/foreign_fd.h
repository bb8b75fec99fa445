// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "base/discard.h"
#include "base/unique_fd.h"

namespace verbena {

// Owns a descriptor that another process has handed us, and that may be anything. What is called with it must
// be a call that waits for no kind of file: fcntl(F_GET_SEALS) before fstat(2), which may ask a server;
// getsockopt(SO_DOMAIN) before anything else of sockets.
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

  // It has been found to be something that is closed at once, by anybody.
  UniqueFd take_known() { return std::move(fd_); }

 private:
  UniqueFd fd_;
};

}  // namespace verbena
