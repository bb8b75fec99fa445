// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "base/own_fd.h"
#include "base/result.h"

namespace verbena {

// Where one thread sleeps until others ring, of this process and of others that were given the ringing end.
// Rings are not counted: who has been rung looks for everything there may be, and may have been rung for
// nothing.
//
// A pair of datagram sockets. An eventfd wakes faster, but who has one can fill it and take O_NONBLOCK off
// it, which keeps waiting who rings it; with a socket it is each call that says that it does not wait.
//
// Thread-safe. Nothing blocks but await(), whatever another process does with its end.
class Bell {
 public:
  // Errors: of socketpair(2).
  static Result<Bell> make();
  // Whether it is a ringing end. Waits for no kind of file.
  static bool is_ringing_end(int fd);
  // Another process's, which has handed us the descriptor. Errors: EINVAL when it is none.
  static Result<Bell> of_other(UniqueFd ringing_end);

  Bell(Bell&&) = default;
  Bell& operator=(Bell&&) = default;

  // Readable when it has rung. -1 of another process's.
  int fd() const { return hearing_end_.get(); }
  // To be handed to another process, which can ring then.
  int ringing_fd() const { return ringing_end_.get(); }

  // False: it is of no use any more. (One that is full of rings has rung.)
  bool ring() const;
  // Until it has rung. EINTR as read(2): not if the signal's handler was installed with SA_RESTART. A
  // cancellation point.
  Result<void> await() const;
  // Whether it has rung since it was last heard.
  bool hear() const;

  // In a child after fork(): it is the parent's. It never rings again.
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
