// SPDX-License-Identifier: Apache-2.0
#include "adapter/shm/mapped_regions.h"

#include <algorithm>
#include <exception>
#include <utility>

#include <infiniband/verbs.h>
#include <sys/resource.h>

#include "adapter/memory/guarded.h"
#include "adapter/shm/peer_mapping.h"
#include "base/cancellation_off.h"
#include "base/log.h"

namespace verbena::engine {
namespace {

// Of the time that passes, one part in so many may go into looking.
constexpr int kShareOfTime = 50;
// What was private may be registered otherwise since, with its key kept (ibv_rereg_mr).
constexpr uint32_t kUsesBeforeNextLook = 1024;

// A program that has limited its addresses has reckoned with its own.
bool may_take_addresses() {
  rlimit limit;
  return ::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur == RLIM_INFINITY;
}

}  // namespace

bool MappedRegions::can_look() const {
  const CancellationOff whole;
  const auto process = ProcessFolder::open(process_);
  if (!process) return false;
  const auto map = ProcessMap::read(*process);
  return map && map->maps_for_writing(board_file_);
}

void MappedRegions::note_use(uint32_t rkey) {
  Known& entry = known(rkey);
  if (entry.key != rkey) {
    if (entry.mapped != nullptr) entry.mapped->last_use = 0;  // it goes first
    entry = {.key = rkey};
  }
  if (may_want_look(entry)) wanted_ = rkey;
}

bool MappedRegions::may_want_look(Known& entry) {
  const uint32_t uses = ++entry.uses;
  return entry.is_private ? uses % kUsesBeforeNextLook == 0 : uses >= kUsesBeforeLook;
}

void MappedRegions::look(const shm::Board& board) {
  if (wanted_ == 0) [[likely]]
    return;
  const TimePoint began = MonotonicClock::now();
  const uint32_t rkey = std::exchange(wanted_, 0);
  Known& entry = known(rkey);
  if (entry.key != rkey) return;
  if (began < not_before_) {
    entry.uses = 0;
    return;
  }
  const auto shown = shm::find_key(board, rkey);
  const uint64_t generation = shown ? shown->generation : 0;
  const bool is_as_before = entry.is_private && entry.generation == generation;
  entry.is_private = true;
  entry.generation = generation;
  if (!shown || is_as_before) return;
  const CancellationOff whole;
  try {
    if (auto mapped = map(*shown)) add(std::move(mapped));
  } catch (const std::exception& error) {
    log_debug("shared memory is not mapped: {}", error.what());
  }
  const TimePoint ended = MonotonicClock::now();
  not_before_ = ended + kShareOfTime * (ended - began);
}

std::unique_ptr<MappedRegions::Mapped> MappedRegions::map(const shm::ShownKey& key) {
  // Memory that is paged on demand is what lies there at the moment, and may be another with each request.
  if ((key.access & IBV_ACCESS_ON_DEMAND) != 0 || key.length == 0 || key.length > kMaxBytes) return nullptr;
  if (key.length > UINT64_MAX - key.base || !may_take_addresses()) return nullptr;
  const auto process = ProcessFolder::open(process_);
  if (!process) return nullptr;
  const auto map = ProcessMap::read(*process);
  if (!map || !map->maps_for_writing(board_file_)) return nullptr;
  const auto stretch = map->find(key.base, key.base + key.length);
  if (!stretch) return nullptr;
  auto found = map_peer_memory(*process, *stretch, key.length, board_file_.device);
  if (!found || found->memory.bytes() > kMaxBytes) return nullptr;

  found->memory.keep_out_of_dumps();
  auto mapped = std::make_unique<Mapped>();
  mapped->key = key;
  mapped->memory = std::move(found->memory);
  mapped->writable = found->writable;
  return mapped;
}

void MappedRegions::add(std::unique_ptr<Mapped> mapped) {
  const auto is_full = [&] {
    return mapped_.size() == kMax || mapped_bytes_ + mapped->memory.bytes() > kMaxBytes;
  };
  while (is_full()) {
    drop(**std::ranges::min_element(mapped_, {}, [](const auto& other) { return other->last_use; }));
  }
  Known& entry = known(mapped->key.key);
  entry = {.key = mapped->key.key, .mapped = mapped.get()};
  mapped->last_use = ++uses_;
  mapped_bytes_ += mapped->memory.bytes();
  mapped_.push_back(std::move(mapped));
}

void MappedRegions::drop(Mapped& mapped) {
  Known& entry = known(mapped.key.key);
  if (entry.mapped == &mapped) entry = {};
  mapped_bytes_ -= mapped.memory.bytes();
  std::erase_if(mapped_, [&](const auto& other) { return other.get() == &mapped; });
}

void MappedRegions::forget(uint32_t rkey) {
  Known& entry = known(rkey);
  if (entry.key != rkey || entry.mapped == nullptr) return;
  const uint64_t generation = entry.mapped->key.generation;
  drop(*entry.mapped);
  entry = {.key = rkey, .is_private = true, .generation = generation};
}

void MappedRegions::drop_unused() {
  for (size_t i = mapped_.size(); i-- > 0;) {
    if (!std::exchange(mapped_[i]->used, false)) drop(*mapped_[i]);
  }
}

}  // namespace verbena::engine
