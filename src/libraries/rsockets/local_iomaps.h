// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <vector>

#include <infiniband/verbs.h>

#include "base/result.h"
#include "libraries/rsockets/iomap_table.h"
#include "libraries/rsockets/verbs_handles.h"

namespace verbena::rsockets {

// The buffers that the application has mapped into a connection with riomap(). The next send announces a new
// mapping to the peer. Thread-safe.
class LocalIomaps {
 public:
  struct News {
    uint32_t index;
    IomapEntry entry;
  };

  // Maps `length` bytes at `offset`, or at the memory's own address if `offset` is -1. A mapping with
  // PROT_WRITE takes one of the `places` entries in the peer's table. Errors: EINVAL, ENOMEM (no entry left),
  // those of ibv_reg_mr(3).
  Result<off_t> map(ibv_pd* domain, void* memory, size_t length, int protection, off_t offset,
                    uint32_t places);
  // Errors: EINVAL if no mapping has this address and length.
  Result<void> unmap(void* memory, size_t length);

  // Mappings to announce to the peer: whether there are any, and the next one, which the caller then sends.
  bool has_news() const { return news_count_.load(std::memory_order_acquire) > 0; }
  std::optional<News> next_news();

  void clear();

 private:
  struct Mapping {
    Region region;
    std::optional<uint32_t> index;  // in the peer's table; none for a local mapping
    uint64_t offset;
  };
  std::optional<uint32_t> free_place(uint32_t places) const;

  std::mutex mutex_;
  std::vector<Mapping> mappings_;
  std::deque<uint32_t> news_;  // indexes of entries to announce
  std::atomic<uint32_t> news_count_{0};
};

}  // namespace verbena::rsockets
