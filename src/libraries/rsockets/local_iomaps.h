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

// The buffers that the application has mapped into a connection with riomap(). The peer hears of a mapping
// with the next data that are sent. Thread-safe.
class LocalIomaps {
 public:
  struct News {
    uint32_t index;
    IomapEntry entry;
  };

  // Maps `length` bytes at `offset`, or where they lie if that is -1. `places` is the size of the peer's
  // table; a mapping for local use needs none of them. Errors: EINVAL, ENOMEM (no place left), those of
  // ibv_reg_mr(3).
  Result<off_t> map(ibv_pd* domain, void* memory, size_t length, int protection, off_t offset,
                    uint32_t places);
  // Errors: EINVAL: not mapped so.
  Result<void> unmap(void* memory, size_t length);

  // Something that the peer does not know yet.
  bool has_news() const { return news_count_.load(std::memory_order_acquire) > 0; }
  std::optional<News> next_news();

  void clear();

 private:
  struct Mapping {
    Region region;
    std::optional<uint32_t> index;  // in the peer's table
    uint64_t offset;
  };
  std::optional<uint32_t> free_place(uint32_t places) const;

  std::mutex mutex_;
  std::vector<Mapping> mappings_;
  std::deque<uint32_t> news_;  // indexes
  std::atomic<uint32_t> news_count_{0};
};

}  // namespace verbena::rsockets
