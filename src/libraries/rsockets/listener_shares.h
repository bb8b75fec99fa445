// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>

#include <sys/resource.h>

namespace verbena::rsockets {

// The shares of a process's listening rsockets in what streams have before the application accepts them: a
// descriptor of the program, and buffers. A peer makes such streams, and may withhold its confirmation. So
// all listeners together have a quarter of RLIMIT_NOFILE, in equal shares, and 256 half-open streams.
// Thread-safe.
class ListenerShares {
 public:
  static constexpr size_t kHalfOpen = 256;
  static constexpr size_t kLeast = 8;  // a share, however many listeners there are
  explicit ListenerShares(size_t descriptors = descriptors_of_all()) : descriptors_(descriptors) {}

  void add_listener() { count_.fetch_add(1, std::memory_order_relaxed); }
  void remove_listener() { count_.fetch_sub(1, std::memory_order_relaxed); }

  // The maximum number of a listener's streams that are half-open or ready, and of those half-open.
  size_t streams() const { return share_of(descriptors_); }
  size_t half_open() const { return std::min(streams(), share_of(kHalfOpen)); }

 private:
  static size_t descriptors_of_all() {
    rlimit limit{};
    return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? static_cast<size_t>(limit.rlim_cur / 4) : kHalfOpen;
  }
  size_t share_of(size_t all) const {
    return std::max(kLeast, all / std::max<size_t>(1, count_.load(std::memory_order_relaxed)));
  }

  const size_t descriptors_;
  std::atomic<size_t> count_ = 0;
};

}  // namespace verbena::rsockets
