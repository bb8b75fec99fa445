// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace verbena::heap {

enum class Use : uint8_t {
  kProgram,  // a block of the program
  kKept,     // freed, but kept with its memory for a later block
  kBarred,   // unusable: it is being unmapped, or other memory lies there
};

// A range of pages in the window.
struct Extent {
  uint32_t page = 0;   // index of the first page in the window
  uint32_t pages = 0;  // number of pages that have memory
  uint32_t room = 0;   // number of pages reserved for the extent to grow in place; at least `pages`
  uint32_t freed = 0;  // order in which extents were freed: grows with each; only for kKept
  Use use = Use::kProgram;
  bool is_private = false;  // a child's copy of its parent's block
};

// The table of extents in a window of addresses: allocates, grows and frees ranges of pages. Pure: does not
// touch the memory that the table describes. Page numbers are indexes into the window; the window's first
// page is aligned to every alignment that callers request. The table itself lies in memory that the caller
// provides, sorted by address.
//
// A search starts at the table's beginning, and an insertion moves all later entries. Both take some
// microseconds for thousands of entries, less than the system calls for each block. Not thread-safe. A
// pointer to an extent is valid until the next call that adds or removes one.
class Extents {
 public:
  // At most 1/kMaxIdle of a block's pages may be unused, after a kept extent is reused or a block shrinks.
  static constexpr uint32_t kMaxIdle = 8;

  struct Taken {
    uint32_t page;
    bool was_kept;  // a kept extent, with its old contents; otherwise without memory yet
  };

  constexpr Extents(Extent* memory, size_t most) : table_(memory), max_(most) {}
  // Sets the window's size in pages. REQUIRES: nothing was taken yet
  void set_window(uint32_t pages) { window_ = pages; }

  // Allocates a block of at least `pages` pages at a multiple of `alignment` pages. First looks for a freed
  // extent that was kept (keep()): reuses the smallest that fits, if at most 1/kMaxIdle of its pages stay
  // unused. Otherwise takes the first free range of `room` pages, in which the block can grow later. Returns
  // nullopt if there is no such range or the table is full. REQUIRES: 0 < pages <= room, alignment > 0
  std::optional<Taken> take(uint32_t pages, uint32_t room, uint32_t alignment);
  // Returns the extent that begins at the page, or nullptr.
  Extent* at(uint32_t page);
  // Returns the program's block that begins at the page, or nullptr.
  Extent* find(uint32_t page);
  // Returns the program's block that contains the page, or nullptr.
  Extent* containing(uint32_t page);
  // Grows the extent in place to `pages` pages in total. Returns false if the next extent or the window's end
  // is in the way. REQUIRES: pages >= extent.pages
  bool grow(Extent& extent, uint32_t pages);

  // Marks a freed block as kept: a later take() may return it with its contents.
  void keep(Extent& extent);
  uint32_t kept_pages() const { return kept_pages_; }
  size_t kept_blocks() const { return kept_blocks_; }
  // Returns the extent that was kept for the longest time, or nullptr.
  Extent* oldest_kept();
  // Returns the kept extent with the highest address, which can be erased fastest, or nullptr.
  Extent* last_kept();
  // Makes the extent kBarred: nobody can use its pages until erase().
  void bar(Extent& extent);
  void erase(Extent& extent);

  Extent* begin() { return table_; }
  Extent* end() { return table_ + count_; }
  size_t size() const { return count_; }

 private:
  Extent* best_kept(uint32_t pages, uint32_t alignment);
  // Takes the extent out of the kept ones, and gives it the use `use`.
  void take_from_kept(Extent& extent, Use use);
  // Returns the page up to which the extent could grow: where the next extent begins, or the window ends.
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
