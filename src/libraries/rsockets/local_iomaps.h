// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <mutex>
#include <vector>

#include "libraries/rsockets/stream_protocol.h"
#include "libraries/rsockets/verbs_handles.h"

namespace verbena::rsockets {

// The buffers that the application has mapped into a connection with riomap(). The next send announces new
// mappings with PROT_WRITE to the peer, which may write to them. Thread-safe.
class LocalIomaps {
 public:
  // A mapping to announce: the entry, and its index in the peer's table.
  struct News {
    uint32_t index;
    IomapEntry entry;
  };

  // Registers `length` bytes at `memory`, and maps them at `offset`, or at their own address if `offset` is
  // -1. Returns the offset. A mapping with PROT_WRITE takes one of the `places` entries in the peer's table.
  // Errors: EINVAL for protection bits other than PROT_WRITE, and for a length of 0 or at least 4 GiB; ENOMEM
  // if no entry is left; those of ibv_reg_mr(3).
  Result<off_t> map(ibv_pd* domain, void* memory, size_t length, int protection, off_t offset,
                    uint32_t places);
  // Deregisters a mapping. Errors: EINVAL if no mapping has this address and length.
  Result<void> unmap(void* memory, size_t length);

  // has_news() returns whether mappings are not announced to the peer yet. next_news() returns the next of
  // these mappings, for the caller to announce, and from then on counts it as announced; nullopt if there is
  // none.
  bool has_news() const { return news_count_.load(std::memory_order_acquire) > 0; }
  std::optional<News> next_news();

  void clear();

 private:
  struct Mapping {
    Region region;
    std::optional<uint32_t> index;  // in the peer's table; nullopt without PROT_WRITE
    uint64_t offset;
    bool is_news;  // waits to be announced
  };

  std::mutex mutex_;
  std::vector<Mapping> mappings_;
  std::atomic<uint32_t> news_count_{0};
};

}  // namespace verbena::rsockets
