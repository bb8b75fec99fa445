// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "adapter/transport/block_pins.h"

namespace verbena::net {

// Blocks of memory that a Sender's runs may leave from without being copied (SplicePipe). A block is free
// when nobody has a pin on it; of these the one that comes first is given, so that few are ever in the cache.
//
// Two huge pages, where there are such: the kernel finds their parts the faster. take() is for one thread at
// a time.
class BlockPool : public std::enable_shared_from_this<BlockPool> {
 public:
  // What goes by a copy: the rest is on whole pages then, and on fifteen at most. A packet of the kernel
  // refers to seventeen pieces, and two of them are copies where these go over the end of its own memory.
  static constexpr size_t kCopiedBytes = 64 + 4096;
  static constexpr uint32_t kBlocks = 60;

  // Null: there is no memory for it.
  static std::shared_ptr<BlockPool> make() noexcept;
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;
  ~BlockPool();

  struct Block {
    std::byte* begin = nullptr;  // SendRun::kBlockBytes
    transport::BlockPin pin;     // none: all are in use
  };
  Block take();

 private:
  explicit BlockPool(std::byte* mapped) : mapped_(mapped) {}

  std::byte* const mapped_;
  std::array<std::atomic<uint32_t>, kBlocks> pins_{};
};

}  // namespace verbena::net
