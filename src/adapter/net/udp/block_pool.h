// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "adapter/transport/block_pins.h"

namespace verbena::net {

// A pool of memory blocks for a Sender's runs that may leave without a copy (SplicePipe). A block is free
// when nobody holds a pin on it. The first free block is taken, so that few blocks occupy the cache.
//
// The pool is two huge pages where these are available: the kernel finds their parts faster. take() is for
// one thread at a time.
class BlockPool : public std::enable_shared_from_this<BlockPool> {
 public:
  // The first bytes of a run, which are copied. The rest then occupies whole pages, at most fifteen. A packet
  // of the kernel refers to at most seventeen pieces, and the copied bytes take two where they cross the end
  // of its own memory.
  static constexpr size_t kCopiedBytes = 64 + 4096;
  static constexpr uint32_t kBlocks = 60;

  // Null: there is no memory for the pool.
  static std::shared_ptr<BlockPool> make() noexcept;
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;
  ~BlockPool();

  struct Block {
    std::byte* begin = nullptr;  // SendRun::kBlockBytes long
    transport::BlockPin pin;     // empty: all blocks are in use
  };
  Block take();

 private:
  explicit BlockPool(std::byte* mapped) : mapped_(mapped) {}

  std::byte* const mapped_;
  std::array<std::atomic<uint32_t>, kBlocks> pins_{};
};

}  // namespace verbena::net
