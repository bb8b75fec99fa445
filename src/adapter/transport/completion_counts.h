// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

namespace verbena::transport {

// The values of a completion counter (ibv_create_comp_cntr(3)). Any number of QPs add to it. Thread-safe.
struct CompletionCount {
  explicit CompletionCount(bool bytes) : counts_bytes(bytes) {}

  const bool counts_bytes;  // of successful requests; else the requests themselves
  std::atomic<uint64_t> completed{0};
  std::atomic<uint64_t> failed{0};  // requests, flushed ones included
};

// The requests of a QP that a counter may count.
enum CountedRequest : uint8_t {
  kCountedSend,
  kCountedReceive,
  kCountedRead,
  kCountedWrite,
  kCountedRequests
};

// The counters of a QP; null: nobody counts that kind.
using CompletionCounts = std::array<std::shared_ptr<CompletionCount>, kCountedRequests>;

}  // namespace verbena::transport
