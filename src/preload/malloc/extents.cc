// SPDX-License-Identifier: Apache-2.0
#include "preload/malloc/extents.h"

#include <algorithm>

namespace verbena::heap {
namespace {

uint64_t round_up(uint64_t value, uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

Extent* Extents::best_kept(uint32_t pages, uint32_t alignment) {
  Extent* best = nullptr;
  for (Extent& extent : *this) {
    if (extent.use != Use::kKept || extent.pages < pages || extent.page % alignment != 0) continue;
    if (extent.pages - pages > extent.pages / kMaxIdle) continue;
    if (best == nullptr || extent.pages < best->pages) best = &extent;
  }
  return best;
}

std::optional<Extents::Taken> Extents::take(uint32_t pages, uint32_t room, uint32_t alignment) {
  if (kept_pages_ >= pages) {
    if (Extent* const kept = best_kept(pages, alignment)) {
      take_from_kept(*kept, Use::kProgram);
      return Taken{.page = kept->page, .was_kept = true};
    }
  }
  if (count_ == max_) return std::nullopt;
  uint64_t at = 0;
  Extent* next = begin();
  for (; next != end(); ++next) {
    if (at + room <= next->page) break;
    at = round_up(uint64_t{next->page} + next->room, alignment);
  }
  if (at + room > window_) return std::nullopt;
  std::copy_backward(next, end(), end() + 1);
  ++count_;
  *next = {.page = static_cast<uint32_t>(at), .pages = pages, .room = room};
  return Taken{.page = next->page, .was_kept = false};
}

Extent* Extents::at(uint32_t page) {
  Extent* const found = std::lower_bound(
      begin(), end(), page, [](const Extent& extent, uint32_t wanted) { return extent.page < wanted; });
  return found != end() && found->page == page ? found : nullptr;
}

Extent* Extents::find(uint32_t page) {
  Extent* const found = at(page);
  return found != nullptr && found->use == Use::kProgram ? found : nullptr;
}

Extent* Extents::containing(uint32_t page) {
  Extent* const next = std::upper_bound(
      begin(), end(), page, [](uint32_t wanted, const Extent& extent) { return wanted < extent.page; });
  if (next == begin()) return nullptr;
  Extent* const found = next - 1;
  return found->use == Use::kProgram && page - found->page < found->pages ? found : nullptr;
}

uint32_t Extents::limit(const Extent& extent) {
  const Extent* const next = &extent + 1;
  return next == end() ? window_ : next->page;
}

bool Extents::grow(Extent& extent, uint32_t pages) {
  if (pages > limit(extent) - extent.page) return false;
  extent.pages = pages;
  extent.room = std::max(extent.room, pages);
  return true;
}

void Extents::keep(Extent& extent) {
  extent.use = Use::kKept;
  extent.freed = ++times_kept_;
  kept_pages_ += extent.pages;
  ++kept_blocks_;
}

void Extents::take_from_kept(Extent& extent, Use use) {
  kept_pages_ -= extent.pages;
  --kept_blocks_;
  extent.use = use;
}

Extent* Extents::oldest_kept() {
  Extent* oldest = nullptr;
  for (Extent& extent : *this) {
    if (extent.use != Use::kKept) continue;
    // The counter may wrap, but the kept extents' numbers differ by less than half of its range.
    if (oldest == nullptr || static_cast<int32_t>(extent.freed - oldest->freed) < 0) oldest = &extent;
  }
  return oldest;
}

Extent* Extents::last_kept() {
  for (Extent* extent = end(); extent != begin();) {
    if ((--extent)->use == Use::kKept) return extent;
  }
  return nullptr;
}

void Extents::bar(Extent& extent) {
  if (extent.use == Use::kKept) take_from_kept(extent, Use::kBarred);
  extent.use = Use::kBarred;
}

void Extents::erase(Extent& extent) {
  bar(extent);
  std::copy(&extent + 1, end(), &extent);
  --count_;
}

}  // namespace verbena::heap
