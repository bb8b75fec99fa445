// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <mutex>
#include <span>

#include <poll.h>

#include "base/result.h"

namespace verbena::engine {

// The epoll sets of a shard's inputs. The engine thread polls them next to its own set, and does not put them
// into it. EPOLL_CTL_ADD to a set that is in another one takes a lock of the whole host (epnested_mutex in
// Linux's fs/eventpoll.c). Any user can make each holder of that lock take a second. Inputs add sockets with
// the shard's lock held, and other users' processes can cause that.
//
// Sets are reported as with EPOLLONESHOT: once one is ready, none is polled again until listen().
//
// add(), remove() and listen() are for any thread, the rest for the thread that polls. Stores descriptors
// that others own.
class PolledSets {
 public:
  static constexpr size_t kMax = 64;

  // Adds a set. The caller wakes the thread, so that it polls the set. Errors: ENOMEM if there are kMax.
  Result<void> add(int set);
  // Removes a set. Returns false if it was not added.
  bool remove(int set);
  // Has ready sets reported again. Returns true if the thread sleeps without them, so that the caller must
  // wake it.
  bool listen();

  // The thread is about to sleep. Fills the first entries with the sets to poll, and returns their number.
  // REQUIRES: there are kMax entries
  size_t begin_sleep(std::span<pollfd> entries);
  // The thread has polled these entries.
  void end_sleep(std::span<const pollfd> entries);

 private:
  std::atomic<bool> listening_{true};
  std::atomic<bool> sleeps_without_{false};
  std::mutex mutex_;
  std::array<int, kMax> sets_{};  // the first count_, under mutex_
  size_t count_ = 0;              // under mutex_
};

}  // namespace verbena::engine
