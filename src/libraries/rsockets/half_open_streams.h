// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>

#include <sys/resource.h>

namespace verbena::rsockets {

// The number of descriptors that streams may have before the application accepts them: a quarter of
// RLIMIT_NOFILE.
inline size_t descriptors_for_unaccepted() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 256;
  return std::max<size_t>(static_cast<size_t>(limit.rlim_cur / 4), 1);
}

// Counts the half-open streams of all listening rsockets of a process. A half-open stream awaits its peer's
// confirmation, which a hostile peer withholds, and has a descriptor and buffers of the program. So the limit
// is one for all listeners, and follows RLIMIT_NOFILE. Thread-safe.
class HalfOpenStreams {
 public:
  static constexpr size_t kMax = 256;
  explicit HalfOpenStreams(size_t most = std::min(kMax, descriptors_for_unaccepted())) : most_(most) {}

  bool is_full() const { return count_.load(std::memory_order_relaxed) >= most_; }
  void add() { count_.fetch_add(1, std::memory_order_relaxed); }
  void remove(size_t count = 1) { count_.fetch_sub(count, std::memory_order_relaxed); }

 private:
  const size_t most_;
  std::atomic<size_t> count_ = 0;
};

}  // namespace verbena::rsockets
