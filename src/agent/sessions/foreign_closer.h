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

// Closes descriptors that users' processes have sent to the agent or have copies of. A close may take as long
// as the descriptor's maker likes (base/foreign_socket.h). So each user's descriptors are closed on a thread
// of their own, and no user waits for another. A thread starts when there is something to close, and ends
// after the last close. The close of a lingering socket is interrupted within 20 ms. A file whose server does
// not answer blocks its user's thread, with all later descriptors of that user.
//
// For the agent's thread. Never blocks.
class ForeignCloser {
 public:
  // is_behind() is true if at least kMaxOfUser descriptors of the user wait and none was closed for
  // kPatience. Then the agent accepts no more clients of that user.
  static constexpr size_t kMaxOfUser = 256;
  static constexpr Duration kPatience = std::chrono::seconds(1);

  ForeignCloser();
  // Does not wait for the threads, which finish their queued work.
  ~ForeignCloser() = default;
  ForeignCloser(const ForeignCloser&) = delete;
  ForeignCloser& operator=(const ForeignCloser&) = delete;

  // Closes the descriptor on the user's thread.
  void close(uid_t user, UniqueFd fd);
  // Returns the number of the user's descriptors that are not closed yet.
  size_t waiting(uid_t user) const;
  // Returns whether the user's descriptors are closed too slowly (kMaxOfUser).
  bool is_behind(uid_t user) const;

 private:
  struct Work;
  static void* run(void* work);
  void forget_idle();

  std::map<uid_t, std::shared_ptr<Work>> users_;
};

// Owns a descriptor that a client has sent, of any kind. The destructor passes it to a ForeignCloser. Callers
// may only use system calls that block for no kind of file (base/foreign_socket.h).
class ClientFile {
 public:
  ClientFile() = default;
  // REQUIRES: the closer outlives this object
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
  // Releases the descriptor, which the caller may then close. REQUIRES: it comes from a trusted user, or it
  // is known to be of a kind whose close() does not block
  UniqueFd take_trusted() { return std::move(fd_); }

 private:
  UniqueFd fd_;
  uid_t user_ = 0;
  ForeignCloser* closer_ = nullptr;
};

}  // namespace verbena::agent
