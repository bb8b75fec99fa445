// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

namespace verbena::transport {

// The values of a completion counter (ibv_create_comp_cntr(3)). Several QPs may share one. Thread-safe.
struct CompletionCount {
  explicit CompletionCount(bool bytes) : counts_bytes(bytes) {}

  const bool counts_bytes;  // true: bytes of successful requests; false: requests
  std::atomic<uint64_t> completed{0};
  std::atomic<uint64_t> failed{0};  // requests, flushed ones included
};

// The kinds of requests that a counter of a QP may count.
enum CountedRequest : uint8_t {
  kCountedSend,
  kCountedReceive,
  kCountedRead,
  kCountedWrite,
  kCountedRequests
};

// The counters of a QP, indexed by CountedRequest; null if that kind is not counted.
using CompletionCounts = std::array<std::shared_ptr<CompletionCount>, kCountedRequests>;

}  // namespace verbena::transport
