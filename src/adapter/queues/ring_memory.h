// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace verbena::queues {

// Purpose of a ring.
enum class RingKind : uint32_t { kSend, kReceive, kSharedReceive, kCompletion };

// An allocator for rings instead of the system's memory: the application's own (ibv_alloc_parent_domain(3)).
// Any thread may call it, without locks of ours held, as the application's code runs inside.
class RingMemory {
 public:
  // Result that is not an address: the caller takes the system's memory.
  static inline std::byte* const kUseDefault = reinterpret_cast<std::byte*>(-1);

  virtual ~RingMemory() = default;
  // Returns memory with any contents. Returns kUseDefault if the caller should take the system's memory, and
  // nullptr if the application has none.
  virtual std::byte* allocate(size_t bytes, size_t alignment, RingKind kind) = 0;
  // Frees memory from allocate() with the same kind.
  virtual void release(std::byte* at, RingKind kind) = 0;
};

}  // namespace verbena::queues
