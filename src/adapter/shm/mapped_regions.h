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

// Parts of another process's memory that are shared memory already, and that we have mapped, too: there we
// read and write with plain loads and stores. They are found by what the kernel says of the other process
// (process_map.h, peer_mapping.h); it is asked for nothing, and may sleep.
//
// Which memory lies behind a key is looked up when the key has been used a few times: that takes a fraction
// of a millisecond. It is looked up once, as an adapter pins pages once, and until the key changes. How many
// there are, how much they cover, and the time spent on looking are bounded. What has not been used for a
// while is unmapped, so that memory which its owner has given up is not kept.
//
// A file may be shortened under our feet, so every access is guarded (adapter/memory/guarded.h). For the
// shard's lock holder.
class MappedRegions {
 public:
  static constexpr size_t kMax = 64;
  static constexpr uint64_t kMaxBytes = uint64_t{1} << 38;  // of addresses
  static constexpr uint32_t kUsesBeforeLook = 8;

  // `board_file`: of the board of this process. It tells the process from others of the same number.
  MappedRegions(pid_t process, const FileIdentity& board_file) : process_(process), board_file_(board_file) {}

  // Whether the process can be looked at, and is who it is thought to be.
  bool can_look() const;

  // Whether the key's memory is mapped, as far as is known here, and may be touched by this thread. Counts as
  // a use.
  bool expects(uint32_t rkey) {
    const Known& entry = known(rkey);
    if (entry.key == rkey && entry.mapped != nullptr) [[likely]]
      return memory::guard_holds_here();
    note_use(rkey);
    return false;
  }
  // Looks up what expects() has found to be in much use. Not while others wait for us.
  void look(const shm::Board& board);

  // Where the bytes lie here; nullptr: they are not mapped (any more), or not for writing.
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
  // An access faulted.
  void forget(uint32_t rkey);

  bool empty() const { return mapped_.empty(); }
  // Unmaps what has not been used since the last call.
  void drop_unused();

 private:
  struct Mapped {
    shm::ShownKey key;
    memory::FileMapping memory;
    bool writable = false;
    bool used = true;  // since the last drop_unused()
    uint64_t last_use = 0;
  };
  // What is known of a key.
  struct Known {
    uint32_t key = 0;
    uint32_t uses = 0;
    bool is_private = false;  // when it was looked up; its memory at any rate cannot be mapped
    uint64_t generation = 0;  // then; 0: it was not on the board
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
