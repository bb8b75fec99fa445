// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include <sys/types.h>

#include "adapter/memory/file_mapping.h"
#include "adapter/memory/guarded.h"
#include "adapter/shm/board.h"
#include "adapter/shm/process_map.h"
#include "base/time.h"

namespace verbena::engine {

// Parts of another process's memory that are mapped in this process, too, because they are shared memory
// (files in tmpfs or hugetlbfs, or System V segments). They are read and written with plain loads and stores.
// The kernel says where they are (process_map.h, peer_mapping.h). The other process is not asked, and may
// sleep.
//
// The memory behind a key is looked up only after the key has been used kUsesBeforeLook times, because this
// takes a fraction of a millisecond. The result is valid until the key changes, even if the other process
// maps other memory there: an RDMA adapter, too, pins pages once. The number of mappings, their size and the
// time for look-ups are limited. A mapping that is unused for a while is unmapped, so that memory which its
// owner has freed is not kept.
//
// Another process may shorten the file at any time, so every access is guarded (adapter/memory/guarded.h).
// For the shard's lock holder.
class MappedRegions {
 public:
  static constexpr size_t kMax = 64;
  // The limit of all mappings together, in bytes of address space.
  static constexpr uint64_t kMaxBytes = uint64_t{1} << 38;
  static constexpr uint32_t kUsesBeforeLook = 8;

  // `board_file` is the file of the process's export table. The process has it mapped, which tells it from a
  // later process with the same pid.
  MappedRegions(pid_t process, const FileIdentity& board_file) : process_(process), board_file_(board_file) {}

  // Returns whether the kernel lets us look at the process, and the process still has `board_file` mapped.
  bool can_look() const;

  // Returns whether the key's memory is mapped here, as far as is known, and this thread may make guarded
  // accesses to it. If it is not mapped, counts a use of the key.
  bool expects(uint32_t rkey) {
    const Known& entry = known(rkey);
    if (entry.key == rkey && entry.mapped != nullptr) [[likely]]
      return memory::guard_holds_here();
    note_use(rkey);
    return false;
  }
  // If expects() has found a key to be used often, looks its memory up, and maps it if possible. This is
  // slow. REQUIRES: this thread is not inside a visit (visit.h), for whose end the other process may be
  // waiting
  void look(const shm::Board& board);

  // Returns the address at which the bytes are mapped in this process. Returns nullptr if they are not mapped
  // or no longer mapped, or if `to_write` is set and the mapping is read-only.
  std::byte* find(const shm::FoundAccess& access, uint64_t bytes, bool to_write) {
    const Known& entry = known(access.rkey);
    Mapped* const mapped = entry.key == access.rkey ? entry.mapped : nullptr;
    if (mapped == nullptr) return nullptr;
    // It is another part of the memory now, or another file.
    if (mapped->key.generation != access.generation) [[unlikely]] {
      drop(*mapped);
      return nullptr;
    }
    if (to_write && !mapped->writable) return nullptr;
    const uint64_t offset = access.at - mapped->key.base;
    if (offset > mapped->key.length || bytes > mapped->key.length - offset) return nullptr;
    mapped->used = true;
    mapped->last_use = ++uses_;
    return mapped->memory.data() + offset;
  }
  // Unmaps a key's memory after an access to it has faulted.
  void forget(uint32_t rkey);

  bool empty() const { return mapped_.empty(); }
  // Unmaps memory that has not been used since the last call.
  void drop_unused();

 private:
  struct Mapped {
    shm::ShownKey key;
    memory::FileMapping memory;
    bool writable = false;
    bool used = true;  // since the last drop_unused()
    uint64_t last_use = 0;
  };
  // The state of one key. Keys with the same place (known()) replace each other.
  struct Known {
    uint32_t key = 0;
    uint32_t uses = 0;
    bool is_private = false;  // the last look-up found that its memory cannot be mapped
    uint64_t generation = 0;  // at the last look-up; 0: the board did not have the key
    Mapped* mapped = nullptr;
  };
  static constexpr size_t kKnown = 256;

  Known& known(uint32_t key) { return known_[(key >> 8) % kKnown]; }
  void note_use(uint32_t rkey);
  bool may_want_look(Known& entry);
  std::unique_ptr<Mapped> map(const shm::ShownKey& key);
  void add(std::unique_ptr<Mapped> mapped);
  void drop(Mapped& mapped);

  const pid_t process_;
  const FileIdentity board_file_;
  std::array<Known, kKnown> known_{};
  std::vector<std::unique_ptr<Mapped>> mapped_;
  uint64_t mapped_bytes_ = 0;
  uint64_t uses_ = 0;
  uint32_t wanted_ = 0;  // the key to look up
  TimePoint not_before_ = TimePoint::min();
};

}  // namespace verbena::engine
