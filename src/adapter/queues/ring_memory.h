// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace verbena::queues {

// What a ring is for.
enum class RingKind : uint32_t { kSend, kReceive, kSharedReceive, kCompletion };

// A source of memory for rings beside the system: an application's own allocator
// (ibv_alloc_parent_domain(3)). Any thread may call it; no lock of ours is held then, as the application's
// code runs inside.
class RingMemory {
 public:
  // An answer that is no place: the caller takes the system's memory.
  static inline std::byte* const kUseDefault = reinterpret_cast<std::byte*>(-1);

  virtual ~RingMemory() = default;
  // Zeroed bytes, kUseDefault, or nullptr when there are none.
  virtual std::byte* allocate(size_t bytes, size_t alignment, RingKind kind) = 0;
  virtual void release(std::byte* at, RingKind kind) = 0;
};

}  // namespace verbena::queues
