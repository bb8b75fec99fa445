// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "adapter/transport/block_pins.h"

namespace verbena::net {

// A pool of memory blocks for a Sender's super-packets (SendRun) that may be sent without a copy
// (SplicePipe). A block is free when nobody holds a pin on it. take() returns the first free block, so that
// few blocks occupy the CPU cache.
//
// The pool consists of two huge pages where these are available, since the kernel looks up parts of a huge
// page faster. take() is for one thread at a time.
class BlockPool : public std::enable_shared_from_this<BlockPool> {
 public:
  // Number of bytes at the beginning of a run that are copied. The rest then occupies at most fifteen whole
  // pages. This fits a packet of the kernel, which refers to at most seventeen pieces of memory: the copied
  // bytes take up to two of them.
  static constexpr size_t kCopiedBytes = 64 + 4096;
  static constexpr uint32_t kBlocks = 60;

  // Returns null if there is no memory for the pool.
  static std::shared_ptr<BlockPool> make() noexcept;
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;
  ~BlockPool();

  struct Block {
    std::byte* begin = nullptr;  // SendRun::kBlockBytes long; null if none is free
    transport::BlockPin pin;     // empty if all blocks are in use
  };
  Block take();

 private:
  explicit BlockPool(std::byte* mapped) : mapped_(mapped) {}

  std::byte* const mapped_;
  std::array<std::atomic<uint32_t>, kBlocks> pins_{};
};

}  // namespace verbena::net
