// SPDX-License-Identifier: Apache-2.0
#include "adapter/engine/polled_sets.h"

#include <algorithm>
#include <cerrno>

namespace verbena::engine {

Result<void> PolledSets::add(int set) {
  const std::lock_guard lock(mutex_);
  if (count_ == kMax) return fail(ENOMEM);
  sets_[count_++] = set;
  return {};
}

bool PolledSets::remove(int set) {
  const std::lock_guard lock(mutex_);
  const auto end = sets_.begin() + static_cast<std::ptrdiff_t>(count_);
  const auto found = std::find(sets_.begin(), end, set);
  if (found == end) return false;
  *found = sets_[--count_];
  return true;
}

// The thread says that it sleeps without the sets, and then reads `listening_`; this does it the other way
// round. So one of them sees what the other has written.
bool PolledSets::listen() {
  if (listening_.load(std::memory_order_relaxed)) return false;
  listening_.store(true, std::memory_order_seq_cst);
  return sleeps_without_.exchange(false, std::memory_order_seq_cst);
}

size_t PolledSets::begin_sleep(std::span<pollfd> entries) {
  sleeps_without_.store(true, std::memory_order_seq_cst);
  if (!listening_.load(std::memory_order_seq_cst)) return 0;
  sleeps_without_.store(false, std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < count_; ++i) entries[i] = {.fd = sets_[i], .events = POLLIN, .revents = 0};
  return count_;
}

// The application may have closed a set by mistake. It is removed, so that the thread does not spin; the
// shard notices the loss (Input::is_whole()).
void PolledSets::end_sleep(std::span<const pollfd> entries) {
  sleeps_without_.store(false, std::memory_order_relaxed);
  for (const pollfd& entry : entries) {
    if (entry.revents != 0) listening_.store(false, std::memory_order_relaxed);
    if ((entry.revents & POLLNVAL) != 0) remove(entry.fd);
  }
}

}  // namespace verbena::engine
