// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include <sys/mman.h>

#include "base/result.h"

namespace verbena::queues {

class RingSlab;

// Allocates memory for small rings; there is one pool per process. The kernel limits mappings to 65,530 per
// process (vm.max_map_count), so a process may need more rings than it may have mappings. The kernel also
// joins adjacent mappings, and unmapping a ring in the middle of a joined mapping splits it into two. So
// rings whose sizes round up to the same power of two share slabs of one mapping each. A slab is freed with
// its last ring, but one of each size stays for the next ring.
//
// Blocks are powers of two, aligned to their size up to a page; so no two share a cache line. They are
// zeroed, and parts never touched cost nothing.
//
// Thread-safe. A child after fork() has the pool like any other memory.
class RingPool {
 public:
  static constexpr size_t kSmallestBlock = 256;
  static constexpr size_t kLargestBlock = 256 * 1024;

  struct Block {
    std::byte* data = nullptr;  // null: out of memory
    RingSlab* slab = nullptr;
  };
  // Returns a zeroed block of at least `bytes` bytes; an empty Block if there is no memory. REQUIRES: 0 <
  // bytes <= kLargestBlock
  static Block allocate(size_t bytes);
  static void release(const Block& block);
};

// Purpose of a ring.
enum class RingKind : uint32_t { kSend, kReceive, kSharedReceive, kCompletion };

// An allocator that the application has given us for the memory of rings (ibv_alloc_parent_domain(3)). Any
// thread may call it, but must not hold a lock of ours, because the application's code runs inside.
class RingMemory {
 public:
  // Result of allocate() that is not an address: the caller must use the system's memory.
  static inline std::byte* const kUseDefault = reinterpret_cast<std::byte*>(-1);

  virtual ~RingMemory() = default;
  // Returns memory, whose contents are undefined. Returns kUseDefault if the caller must use the system's
  // memory, and nullptr if the application has no memory.
  virtual std::byte* allocate(size_t bytes, size_t alignment, RingKind kind) = 0;
  // Frees memory from allocate() with the same kind.
  virtual void release(std::byte* at, RingKind kind) = 0;
};

// Memory of a ring or another array. It costs nothing until touched: rings are created as large as the
// application asks, often far larger than what it uses. Small arrays come from RingPool, and large ones have
// a mapping each; both are zeroed. Memory from the application's own allocator (Source::from) may have any
// contents.
class MappedArray {
 public:
  // Allocator of the memory, and the kind of ring to tell it. If `from` is null, the memory is the system's.
  struct Source {
    RingMemory* from = nullptr;
    RingKind kind = RingKind::kSend;
  };

  // Allocates an array of `bytes` bytes. Errors: ENOMEM.
  static Result<MappedArray> create(size_t bytes) { return create(bytes, Source{}); }
  static Result<MappedArray> create(size_t bytes, Source source) {
    if (source.from != nullptr) {
      std::byte* at = source.from->allocate(bytes, kAlignment, source.kind);
      if (at == nullptr) return fail(ENOMEM);
      if (at != RingMemory::kUseDefault) return MappedArray(at, bytes, source, nullptr);
    }
    return bytes <= RingPool::kLargestBlock ? pooled(bytes) : mapped(bytes);
  }

  MappedArray() = default;
  MappedArray(MappedArray&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)),
        source_(std::exchange(other.source_, Source{})),
        slab_(std::exchange(other.slab_, nullptr)) {}
  MappedArray& operator=(MappedArray&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(source_, other.source_);
    std::swap(slab_, other.slab_);
    return *this;
  }
  ~MappedArray() {
    if (data_ == nullptr) return;
    if (source_.from != nullptr) {
      source_.from->release(data_, source_.kind);
    } else if (slab_ != nullptr) {
      RingPool::release({data_, slab_});
    } else if (::munmap(data_, bytes_) != 0) {
      // munmap() may fail: a hole may need one mapping more than the process may have. The memory can always
      // be released.
      ::madvise(data_, bytes_, MADV_DONTNEED);
    }
  }

  std::byte* data() const { return data_; }
  size_t size() const { return bytes_; }

 private:
  static constexpr size_t kAlignment = 64;
  static_assert(kAlignment <= RingPool::kSmallestBlock);

  MappedArray(std::byte* data, size_t bytes, Source source, RingSlab* slab)
      : data_(data), bytes_(bytes), source_(source), slab_(slab) {}

  static Result<MappedArray> pooled(size_t bytes) {
    const RingPool::Block block = RingPool::allocate(bytes);
    if (block.data == nullptr) return fail(ENOMEM);
    return MappedArray(block.data, bytes, Source{}, block.slab);
  }

  static Result<MappedArray> mapped(size_t bytes) {
    void* at =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return fail(ENOMEM);
    return MappedArray(static_cast<std::byte*>(at), bytes, Source{}, nullptr);
  }

  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  Source source_;             // null `from`: the system
  RingSlab* slab_ = nullptr;  // slab in the pool; null: a mapping of its own
};

}  // namespace verbena::queues
