// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <utility>

#include <sys/types.h>

#include "base/time.h"
#include "base/unique_fd.h"

namespace verbena::agent {

// Closes what users' processes have handed the agent, or have a copy of, in its own time: how long that takes
// is up to its maker (base/discard.h). A thread for each user does it, so that nobody waits for what
// another user's descriptors take; it is started when there is something to close, and ends with the last. A
// socket that lingers is given up after a moment; a file whose server does not answer holds up its user's
// thread, and what that user has handed over after it.
//
// Of the agent's thread. Never blocks.
class ForeignCloser {
 public:
  // Of a user who has so many waiting, none of which could be closed for so long, nothing more should be
  // taken.
  static constexpr size_t kMaxOfUser = 256;
  static constexpr Duration kPatience = std::chrono::seconds(1);

  ForeignCloser();
  // Threads that cannot end go on with what they have.
  ~ForeignCloser() = default;
  ForeignCloser(const ForeignCloser&) = delete;
  ForeignCloser& operator=(const ForeignCloser&) = delete;

  void close(uid_t user, UniqueFd fd);
  // How many of the user's are not closed yet.
  size_t waiting(uid_t user) const;
  bool is_behind(uid_t user) const;

 private:
  struct Work;
  static void* run(void* work);
  void forget_idle();

  std::map<uid_t, std::shared_ptr<Work>> users_;
};

// Owns a descriptor that a client has handed over, and that may be anything. What is called with it must be a
// call that waits for no kind of file (base/foreign_fd.h).
class ClientFile {
 public:
  ClientFile() = default;
  // REQUIRES: the closer outlives this
  ClientFile(UniqueFd fd, uid_t user, ForeignCloser& closer)
      : fd_(std::move(fd)), user_(user), closer_(&closer) {}
  ClientFile(ClientFile&&) = default;
  ClientFile& operator=(ClientFile&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(user_, other.user_);
    std::swap(closer_, other.closer_);
    return *this;
  }
  ~ClientFile() {
    if (fd_) closer_->close(user_, std::move(fd_));
  }

  int get() const { return fd_.get(); }
  explicit operator bool() const { return static_cast<bool>(fd_); }
  // It is of somebody who would not harm us.
  UniqueFd take_trusted() { return std::move(fd_); }

 private:
  UniqueFd fd_;
  uid_t user_ = 0;
  ForeignCloser* closer_ = nullptr;
};

}  // namespace verbena::agent
