// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "base/result.h"
#include "base/unique_fd.h"

namespace verbena {

// An eventfd that one thread sleeps on and others ring, of this process and of others that were given the
// descriptor. Rings are not counted: who has been rung looks for everything there may be.
//
// Thread-safe. Nothing blocks but await().
class Bell {
 public:
  // Errors: of eventfd(2), and EOPNOTSUPP where the kernel cannot say whether it rang without blocking
  // (before Linux 5.8).
  static Result<Bell> make();
  // That of another process, which has handed us the descriptor. Errors: EINVAL when it is no eventfd.
  static Result<Bell> of_other(UniqueFd fd);

  Bell(Bell&&) = default;
  Bell& operator=(Bell&&) = default;

  int fd() const { return fd_.get(); }

  void ring() const;
  // Until it has rung since it was last heard. EINTR as read(2): not if the signal's handler was installed
  // with SA_RESTART. A cancellation point.
  Result<void> await() const;
  // Whether it has rung since it was last heard.
  bool hear() const;

  // In a child after fork(): it is the parent's. It never rings again.
  void abandon() { fd_.reset(); }

 private:
  explicit Bell(UniqueFd fd) : fd_(std::move(fd)) {}

  UniqueFd fd_;
};

}  // namespace verbena
