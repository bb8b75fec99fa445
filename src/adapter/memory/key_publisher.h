// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "adapter/memory/opening.h"

namespace verbena::memory {

// Shows the keys of a KeyTable to other processes (adapter/shm/own_board.h). The table calls it at each
// change.
class KeyPublisher {
 public:
  virtual ~KeyPublisher() = default;

  // ---- with the table's lock held

  // Publishes `opening`, which its key opens from now on.
  virtual void publish(const Opening& opening) = 0;
  // Withdraws a key, before it opens nothing, or something else.
  virtual void withdraw(uint32_t key) = 0;

  // ---- without the table's lock

  // Waits until no other process uses withdrawn keys any more.
  virtual void await_users() = 0;
  // Alternative without waiting: returns a value for are_gone() that identifies the accesses which may still
  // use withdrawn keys; 0 if there are none.
  virtual uint64_t users() = 0;
  // Non-blocking: whether all accesses in `users` have finished. An access still running after 2 s counts as
  // finished.
  virtual bool are_gone(uint64_t users) = 0;
};

}  // namespace verbena::memory
