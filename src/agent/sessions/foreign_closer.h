// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <utility>

#include <sys/types.h>

#include "base/quota.h"
#include "base/time.h"
#include "base/unique_fd.h"

namespace verbena::agent {

// Closes descriptors that users' processes have sent to the agent or have copies of. A close may take as long
// as the descriptor's maker likes (base/foreign_fd.h). So each user's descriptors are closed on a thread of
// their own, and no user waits for another. A thread starts when there is something to close, and ends after
// the last close. The close of a lingering socket is interrupted within 20 ms. A file whose server does not
// answer blocks its user's thread, with all later descriptors of that user.
//
// All descriptors that clients have sent count in shares (base/quota.h) until they are closed: those that the
// agent keeps (ClientFile), and those that wait here.
//
// For the agent's thread. Never blocks.
class ForeignCloser {
 public:
  // is_behind() is true if at least kMaxOfUser descriptors of the user wait and none was closed for
  // kPatience. Then the agent accepts no more clients of that user.
  static constexpr size_t kMaxOfUser = 256;
  static constexpr Duration kPatience = std::chrono::seconds(1);
  // Returns the quota of clients' descriptors for an agent that may open `descriptors`: as many as event
  // channels and XRC domains may have (descriptors_test.cc), and a 32nd of the limit more.
  static constexpr Quota::Size room_with(size_t descriptors) {
    return Quota::Size::of(descriptors / 4 + descriptors / 16 + descriptors / 32);
  }

  explicit ForeignCloser(Quota::Size files = room_with(1 << 16), uid_t own = 0);
  // Does not wait for the threads, which finish their queued work.
  ~ForeignCloser() = default;
  ForeignCloser(const ForeignCloser&) = delete;
  ForeignCloser& operator=(const ForeignCloser&) = delete;

  // Returns whether the agent may take another descriptor from a client of the user.
  bool allows(uid_t user) const { return files_->allows(user); }
  // Counts a descriptor as the user's until the share is destroyed.
  QuotaShare count(uid_t user) { return take_share(files_, user); }
  // Closes the descriptor on the user's thread. Destroys `share` when it is closed. Without a share, counts
  // the descriptor until then, beyond the user's limit if need be.
  void close(uid_t user, UniqueFd fd, QuotaShare share = {});
  // Returns a descriptor that is readable after descriptors were closed, until take_closed().
  int fd() const;
  // Destroys the shares of descriptors that are closed, and returns their number.
  size_t take_closed();
  // Returns the number of the user's descriptors that are not closed yet.
  size_t waiting(uid_t user) const;
  // Returns whether the user's descriptors are closed too slowly (kMaxOfUser).
  bool is_behind(uid_t user) const;

 private:
  struct Closed;
  struct Work;
  static void* run(void* work);
  void forget_idle();

  const std::shared_ptr<Quota> files_;
  const std::shared_ptr<Closed> closed_;
  std::map<uid_t, std::shared_ptr<Work>> users_;
};

// Owns a descriptor that a client has sent, of any kind. The destructor passes it to a ForeignCloser. Callers
// may only use system calls that block for no kind of file (base/foreign_fd.h).
class ClientFile {
 public:
  ClientFile() = default;
  // REQUIRES: the closer outlives this object
  ClientFile(UniqueFd fd, uid_t user, ForeignCloser& closer)
      : share_(fd ? closer.count(user) : QuotaShare()), fd_(std::move(fd)), user_(user), closer_(&closer) {}
  ClientFile(ClientFile&&) = default;
  ClientFile& operator=(ClientFile&& other) noexcept {
    std::swap(share_, other.share_);
    std::swap(fd_, other.fd_);
    std::swap(user_, other.user_);
    std::swap(closer_, other.closer_);
    return *this;
  }
  ~ClientFile() {
    if (fd_) closer_->close(user_, std::move(fd_), std::move(share_));
  }

  int get() const { return fd_.get(); }
  explicit operator bool() const { return static_cast<bool>(fd_); }
  // Releases the descriptor, which the caller may then close. REQUIRES: it comes from a trusted user, or it
  // is known to be of a kind whose close() does not block
  UniqueFd take_trusted() {
    share_.reset();
    return std::move(fd_);
  }

 private:
  QuotaShare share_;
  UniqueFd fd_;
  uid_t user_ = 0;
  ForeignCloser* closer_ = nullptr;
};

}  // namespace verbena::agent
