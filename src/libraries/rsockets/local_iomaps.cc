// SPDX-License-Identifier: Apache-2.0
#include "libraries/rsockets/local_iomaps.h"

#include <algorithm>
#include <limits>

#include <sys/mman.h>

namespace verbena::rsockets {

std::optional<uint32_t> LocalIomaps::free_place(uint32_t places) const {
  for (uint32_t place = 0; place < places; ++place) {
    const bool taken = std::any_of(mappings_.begin(), mappings_.end(),
                                   [&](const Mapping& mapping) { return mapping.index == place; });
    if (!taken) return place;
  }
  return std::nullopt;
}

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
    mapping.index = free_place(places);
    if (!mapping.index) return fail(ENOMEM);
  }
  mapping.region.reset(ibv_reg_mr(domain, memory, length, access));
  if (!mapping.region) return fail(errno);
  if (offset == -1) offset = static_cast<off_t>(reinterpret_cast<uintptr_t>(memory));
  mapping.offset = static_cast<uint64_t>(offset);
  if (remote) {
    news_.push_back(*mapping.index);
    news_count_.fetch_add(1, std::memory_order_release);
  }
  mappings_.push_back(std::move(mapping));
  return offset;
}

Result<void> LocalIomaps::unmap(void* memory, size_t length) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(mappings_.begin(), mappings_.end(), [&](const Mapping& mapping) {
    return mapping.region->addr == memory && mapping.region->length == length;
  });
  if (found == mappings_.end()) return fail(EINVAL);
  if (found->index) {
    const auto unknown = std::find(news_.begin(), news_.end(), *found->index);
    if (unknown != news_.end()) {
      news_.erase(unknown);
      news_count_.fetch_sub(1, std::memory_order_release);
    }
  }
  mappings_.erase(found);
  return {};
}

std::optional<LocalIomaps::News> LocalIomaps::next_news() {
  const std::lock_guard lock(mutex_);
  if (news_.empty()) return std::nullopt;
  const uint32_t index = news_.front();
  news_.pop_front();
  news_count_.fetch_sub(1, std::memory_order_release);
  const auto found = std::find_if(mappings_.begin(), mappings_.end(),
                                  [&](const Mapping& mapping) { return mapping.index == index; });
  const ibv_mr& region = *found->region;
  return News{
      index,
      {found->offset,
       {reinterpret_cast<uintptr_t>(region.addr), region.rkey, static_cast<uint32_t>(region.length)}}};
}

void LocalIomaps::clear() {
  const std::lock_guard lock(mutex_);
  mappings_.clear();
  news_.clear();
  news_count_.store(0, std::memory_order_release);
}

}  // namespace verbena::rsockets
