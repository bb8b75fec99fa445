// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>

#include "base/intrusive_list.h"

namespace verbena {

// A mutex of an object of which there may be many, such as a table of a context. fork() waits for all of
// them, so that a child finds none taken by a thread that it does not have, and nothing half done that one
// guards. Under it no other such mutex is taken, nor one that fork() takes before, such as a shard's.
//
// One whose holder itself forks, in the handler of a signal, fork() gives up after a while; the child then
// has it free, and what it guards as it was.
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
