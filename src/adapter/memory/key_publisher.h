// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "adapter/memory/opening.h"

namespace verbena::memory {

// Shows the keys of a table to others than its readers: to other processes (adapter/shm/own_board.h). Told of
// each change by KeyTable.
class KeyPublisher {
 public:
  virtual ~KeyPublisher() = default;

  // ---- with the table's lock

  // The key opens this now.
  virtual void publish(const Opening& opening) = 0;
  // The key is about to open nothing, or something else.
  virtual void withdraw(uint32_t key) = 0;

  // ---- without it

  // Nobody uses any more what was withdrawn before.
  virtual void await_users() = 0;
  // For who cannot wait. A number for those who may be using what was withdrawn before; 0: nobody is.
  virtual uint64_t users() = 0;
  // Whether these have all gone. They are taken to be after a while: nobody stays for long.
  virtual bool are_gone(uint64_t users) = 0;
};

}  // namespace verbena::memory
