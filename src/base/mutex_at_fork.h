// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>

#include "base/intrusive_list.h"

namespace verbena {

// A mutex that fork() holds, for objects with many instances such as the tables of a context. So a child
// never inherits it taken by a thread that it lacks, nor half-changed data that it guards. While holding it,
// take no other MutexAtFork and no mutex that fork() takes earlier, such as a shard's.
//
// If the holder itself forks, in a signal handler, fork() gives up waiting after 10 s. The child then gets
// the mutex free and the guarded data as they were.
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
  ListHook known_;              // in the list of all mutexes; guarded by that list's mutex
  bool forker_has_it_ = false;  // the forking thread holds this mutex; guarded likewise
};

}  // namespace verbena
