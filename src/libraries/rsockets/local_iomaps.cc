// SPDX-License-Identifier: Apache-2.0
#include "libraries/rsockets/local_iomaps.h"

#include <limits>

#include <sys/mman.h>

namespace verbena::rsockets {

Result<off_t> LocalIomaps::map(ibv_pd* domain, void* memory, size_t length, int protection, off_t offset,
                               uint32_t places) {
  if ((protection & ~PROT_WRITE) != 0 || length == 0) return fail(EINVAL);
  // An entry has 32 bits for the length.
  if (length > std::numeric_limits<uint32_t>::max()) return fail(EINVAL);
  const std::lock_guard lock(mutex_);
  const bool remote = (protection & PROT_WRITE) != 0;
  Mapping mapping;
  unsigned access = IBV_ACCESS_LOCAL_WRITE;
  if (remote) {
    access |= IBV_ACCESS_REMOTE_WRITE;
    uint32_t place = 0;
    while (std::ranges::find(mappings_, place, &Mapping::index) != mappings_.end()) ++place;
    if (place >= places) return fail(ENOMEM);
    mapping.index = place;
  }
  mapping.region.reset(ibv_reg_mr(domain, memory, length, access));
  if (!mapping.region) return fail(errno);
  if (offset == -1) offset = static_cast<off_t>(reinterpret_cast<uintptr_t>(memory));
  mapping.offset = static_cast<uint64_t>(offset);
  mapping.is_news = remote;
  if (remote) news_count_.fetch_add(1, std::memory_order_release);
  mappings_.push_back(std::move(mapping));
  return offset;
}

Result<void> LocalIomaps::unmap(void* memory, size_t length) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(mappings_.begin(), mappings_.end(), [&](const Mapping& mapping) {
    return mapping.region->addr == memory && mapping.region->length == length;
  });
  if (found == mappings_.end()) return fail(EINVAL);
  if (found->is_news) news_count_.fetch_sub(1, std::memory_order_release);
  mappings_.erase(found);
  return {};
}

std::optional<LocalIomaps::News> LocalIomaps::next_news() {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(mappings_, true, &Mapping::is_news);
  if (found == mappings_.end()) return std::nullopt;
  found->is_news = false;
  news_count_.fetch_sub(1, std::memory_order_release);
  const ibv_mr& region = *found->region;
  return News{
      *found->index,
      {found->offset,
       {reinterpret_cast<uintptr_t>(region.addr), region.rkey, static_cast<uint32_t>(region.length)}}};
}

void LocalIomaps::clear() {
  const std::lock_guard lock(mutex_);
  mappings_.clear();
  news_count_.store(0, std::memory_order_release);
}

}  // namespace verbena::rsockets
