// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace verbena::heap {

enum class Use : uint8_t {
  kProgram,  // a block of the program's
  kKept,     // freed, with its memory, for a next block
  kBarred,   // nobody's: it is being unmapped, or somebody else lies there
};

// A stretch of the window, in pages.
struct Extent {
  uint32_t page = 0;
  uint32_t pages = 0;  // that have memory
  uint32_t room = 0;   // up to which it may grow without asking; at least `pages`
  uint32_t freed = 0;  // of those that are kept, the order in which they were
  Use use = Use::kProgram;
  bool is_private = false;  // a child's copy of what was its parent's
};

// What lies where in a window of addresses. Pure: it keeps the table, in memory that it is given and in the
// order of addresses, and touches nothing that the table speaks of. An index into a window whose first page
// is aligned to whatever is asked for.
//
// The table is searched from its beginning, and what lies behind a new entry is moved: some microseconds for
// thousands of entries. What is asked of the kernel for each block costs more. Not thread-safe. A pointer to
// an extent is good until the next call that adds one or takes one away.
class Extents {
 public:
  // Of what a block has, one part in so many may lie idle.
  static constexpr uint32_t kMaxIdle = 8;

  struct Taken {
    uint32_t page;
    bool was_kept;  // it has memory, with what was in it before; else there is none yet
  };

  constexpr Extents(Extent* memory, size_t most) : table_(memory), max_(most) {}
  // REQUIRES: nothing has been taken
  void set_window(uint32_t pages) { window_ = pages; }

  // A block of at least so many pages, at a multiple of `alignment`: one that was kept, if it is not much
  // larger, or the first place that has room. Nothing: there is none. REQUIRES: 0 < pages <= room,
  // alignment > 0
  std::optional<Taken> take(uint32_t pages, uint32_t room, uint32_t alignment);
  // What begins there, or nullptr.
  Extent* at(uint32_t page);
  // The block that begins there, or nullptr.
  Extent* find(uint32_t page);
  // The block that has the page, or nullptr.
  Extent* containing(uint32_t page);
  // Gives it so many pages, if nothing lies there. REQUIRES: pages >= extent.pages
  bool grow(Extent& extent, uint32_t pages);

  // The program does not need it any more; the next may have it as it is.
  void keep(Extent& extent);
  uint32_t kept_pages() const { return kept_pages_; }
  size_t kept_blocks() const { return kept_blocks_; }
  // What has been kept for longest, or nullptr.
  Extent* oldest_kept();
  // Of all that is kept what lies last, which is erased soonest, or nullptr.
  Extent* last_kept();
  // Nobody gets this place, until it is erased.
  void bar(Extent& extent);
  void erase(Extent& extent);

  Extent* begin() { return table_; }
  Extent* end() { return table_ + count_; }
  size_t size() const { return count_; }

 private:
  Extent* best_kept(uint32_t pages, uint32_t alignment);
  // It is kept no more.
  void take_from_kept(Extent& extent, Use use);
  // Where the next one begins, or the window ends.
  uint32_t limit(const Extent& extent);

  Extent* const table_;
  const size_t max_;
  size_t count_ = 0;
  uint32_t window_ = 0;
  uint32_t kept_pages_ = 0;
  size_t kept_blocks_ = 0;
  uint32_t times_kept_ = 0;
};

}  // namespace verbena::heap
