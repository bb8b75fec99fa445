// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>

#include "base/intrusive_list.h"

namespace verbena {

// A mutex of an object of which there may be many, such as a table of a context. fork() waits for all of
// them, so that a child finds none taken by a thread that it does not have. Under it no other such mutex is
// taken.
//
// It may be held for long, or while its thread waits for another lock, by those who only read what it guards:
// fork() gives up waiting for it soon, and the child has it free.
class MutexAtFork {
 public:
  MutexAtFork();
  ~MutexAtFork();
  MutexAtFork(const MutexAtFork&) = delete;
  MutexAtFork& operator=(const MutexAtFork&) = delete;

  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  friend class MutexesAtFork;

  std::mutex mutex_;
  ListHook known_;              // in the list of all; guarded by that list's mutex
  bool forker_has_it_ = false;  // guarded by the same
};

}  // namespace verbena
