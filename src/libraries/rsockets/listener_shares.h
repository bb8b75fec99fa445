// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>

#include <sys/resource.h>

namespace verbena::rsockets {

// Limits the streams that a listening rsocket has before the application accepts them. Each of these streams
// takes a descriptor of the program, and buffers. A peer can cause many of them, and leave them half-open by
// never completing the connection setup. So all listeners of the process together may have RLIMIT_NOFILE / 4
// such streams, and 256 half-open ones. Each listener has an equal share of both limits, but at least kLeast.
// Thread-safe.
class ListenerShares {
 public:
  static constexpr size_t kHalfOpen = 256;
  static constexpr size_t kLeast = 8;  // the minimum share of a listener, in streams
  explicit ListenerShares(size_t descriptors = descriptors_of_all()) : descriptors_(descriptors) {}

  void add_listener() { count_.fetch_add(1, std::memory_order_relaxed); }
  void remove_listener() { count_.fetch_sub(1, std::memory_order_relaxed); }

  // Return the share of one listener. streams() is the maximum number of half-open and ready streams
  // together; half_open() is the maximum number of half-open streams.
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
