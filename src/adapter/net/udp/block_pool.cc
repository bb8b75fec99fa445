// SPDX-License-Identifier: Apache-2.0
#include "adapter/net/udp/block_pool.h"

#include <bit>
#include <new>

#include <sys/mman.h>

#include "adapter/net/udp/send_run.h"

namespace verbena::net {
namespace {

constexpr size_t kPageBytes = 4096;  // or a multiple; then a run occupies fewer pages
constexpr size_t kHugePageBytes = size_t{2} << 20;
constexpr size_t kPoolBytes = 2 * kHugePageBytes;
// Where a block begins within a page, so that the bytes behind the copied ones begin with a page.
constexpr size_t kBlockAt = kPageBytes - BlockPool::kCopiedBytes % kPageBytes;
constexpr size_t kStride = kBlockAt + SendRun::kBlockBytes;
static_assert(kStride % kPageBytes == 0);
static_assert(SendRun::kMaxBytes - BlockPool::kCopiedBytes <= 15 * kPageBytes);
static_assert(BlockPool::kBlocks * kStride <= kPoolBytes);

std::byte* align_up(std::byte* at, size_t to) {
  return at + (to - std::bit_cast<uintptr_t>(at) % to) % to;
}

// Maps memory that begins with a huge page; null: there is none.
std::byte* map_pool() {
  const size_t bytes = kPoolBytes + kHugePageBytes;
  void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* const first = static_cast<std::byte*>(mapped);
  std::byte* const begin = align_up(first, kHugePageBytes);
  if (begin != first) munmap(first, static_cast<size_t>(begin - first));
  std::byte* const end = begin + kPoolBytes;
  if (end != first + bytes) munmap(end, static_cast<size_t>(first + bytes - end));
  madvise(begin, kPoolBytes, MADV_HUGEPAGE);  // speed only
  return begin;
}

}  // namespace

std::shared_ptr<BlockPool> BlockPool::make() noexcept {
  std::byte* const mapped = map_pool();
  if (mapped == nullptr) return nullptr;
  try {
    return std::shared_ptr<BlockPool>(new BlockPool(mapped));
  } catch (const std::bad_alloc&) {
    munmap(mapped, kPoolBytes);
    return nullptr;
  }
}

BlockPool::~BlockPool() {
  munmap(mapped_, kPoolBytes);
}

BlockPool::Block BlockPool::take() {
  for (uint32_t i = 0; i < kBlocks; ++i) {
    if (pins_[i].load(std::memory_order_acquire) != 0) continue;
    return {mapped_ + i * kStride + kBlockAt,
            transport::BlockPin(transport::BlockPin::Count(shared_from_this(), &pins_[i]))};
  }
  return {};
}

}  // namespace verbena::net
