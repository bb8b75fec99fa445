// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "base/own_fd.h"
#include "base/result.h"

namespace verbena {

// A wake-up: one thread sleeps in await() until another thread, or another process that has the ringing
// descriptor, calls ring(). Wake-ups are not counted and may be spurious: the woken thread must look for all
// possible work.
//
// Implemented as a pair of datagram sockets. An eventfd wakes faster. But any process that has the eventfd
// can fill it and clear O_NONBLOCK, and then ring() would block. With a socket each call chooses not to block
// (MSG_DONTWAIT).
//
// Thread-safe. Only await() blocks, whatever another process does with its end.
class Bell {
 public:
  // Makes a Bell with both ends in this process. Errors: of socketpair(2) and bind(2).
  static Result<Bell> make();
  // Whether `fd` is a ringing end, that is, a named AF_UNIX datagram socket. Does not block on any kind of
  // file.
  static bool is_ringing_end(int fd);
  // Wraps a ringing end that another process made and sent here. The result can ring() but not await(): fd()
  // is -1. Errors: EINVAL if `ringing_end` is no ringing end.
  static Result<Bell> of_other(UniqueFd ringing_end);

  Bell(Bell&&) = default;
  Bell& operator=(Bell&&) = default;

  // Returns the end that becomes readable after a wake-up, for poll(2); -1 if another process has that end.
  int fd() const { return hearing_end_.get(); }
  // Returns the end to send to another process so that it can call ring().
  int ringing_fd() const { return ringing_end_.get(); }

  // Sends a wake-up. Returns false if sending fails, as when the other end is closed. A full socket counts as
  // success, since a wake-up is pending then.
  bool ring() const;
  // Sleeps until a wake-up comes and consumes one. Errors: EINTR if a signal handler ran that was installed
  // without SA_RESTART. A cancellation point. REQUIRES: fd() >= 0
  Result<void> await() const;
  // Consumes the pending wake-ups, at most 17. Returns whether there was one. Does not block.
  bool hear() const;

  // For a child after fork(): closes the child's copies of both ends; the parent's stay open. The object is
  // unusable from then on.
  void abandon() {
    hearing_end_.reset();
    ringing_end_.reset();
  }

 private:
  Bell(UniqueFd hearing_end, UniqueFd ringing_end)
      : hearing_end_(std::move(hearing_end)), ringing_end_(std::move(ringing_end)) {}

  OwnFd hearing_end_;
  OwnFd ringing_end_;
};

}  // namespace verbena
