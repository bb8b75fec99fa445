// SPDX-License-Identifier: Apache-2.0
#include "adapter/transport/gather.h"

#include <algorithm>

#include "adapter/memory/guarded.h"

namespace verbena::transport {
namespace {

// Walks the parts of a list that cover [offset, offset + bytes) and calls visit(address, length, lkey); stops
// when visit returns false. Returns the bytes covered, or UINT64_MAX when visit stopped it.
template <class Visit>
uint64_t walk(std::span<const ibv_sge> list, uint64_t offset, uint64_t bytes, Visit visit) {
  uint64_t covered = 0;
  for (const ibv_sge& sge : list) {
    if (covered == bytes) break;
    if (offset >= sge.length) {
      offset -= sge.length;
      continue;
    }
    const uint64_t length = std::min<uint64_t>(sge.length - offset, bytes - covered);
    if (!visit(sge.addr + offset, static_cast<uint32_t>(length), sge.lkey)) return UINT64_MAX;
    covered += length;
    offset = 0;
  }
  return covered;
}

// Destination of a piece of a list; `to` is null in a null region.
struct Place {
  std::byte* to = nullptr;
  bool valid = false;
};

Place place_of(memory::KeyFinder& keys, memory::PdId pd, uint64_t address, uint32_t lkey, uint64_t bytes) {
  const memory::Opening* const region = keys.find(lkey);
  if (region == nullptr || !region->allows_local(IBV_ACCESS_LOCAL_WRITE, pd)) return {};
  if (region->kind == memory::RegionKind::kNull) return {.valid = true};
  std::byte* const to = region->at(address, bytes);
  return {to, to != nullptr};
}

bool write_to(memory::KeyFinder& keys, memory::PdId pd, uint64_t address, uint32_t lkey, ConstBytes data) {
  const Place place = place_of(keys, pd, address, lkey, data.size());
  // False: a fault, or the region does not contain the piece.
  return place.valid && (place.to == nullptr || memory::copy_guarded(place.to, data));
}

// Not inlined: its caller rarely needs it.
[[gnu::noinline]] ScatterResult scatter_parts(memory::KeyFinder& keys, memory::PdId pd,
                                              std::span<const ibv_sge> list, uint64_t offset,
                                              ConstBytes data) {
  const std::byte* from = data.data();
  const uint64_t covered =
      walk(list, offset, data.size(), [&](uint64_t address, uint32_t length, uint32_t lkey) {
        if (!write_to(keys, pd, address, lkey, {from, length})) return false;
        from += length;
        return true;
      });
  if (covered == UINT64_MAX) return ScatterResult::kProtection;
  return covered == data.size() ? ScatterResult::kDone : ScatterResult::kTooLong;
}

}  // namespace

bool gather_parts(memory::KeyFinder& keys, memory::PdId pd, std::span<const ibv_sge> list, uint64_t offset,
                  uint32_t bytes, memory::Access wanted, Pieces& pieces) {
  return walk(list, offset, bytes, [&](uint64_t address, uint32_t length, uint32_t lkey) {
           const std::byte* const at = local_memory(keys, pd, {address, length, lkey}, length, wanted);
           if (at == nullptr) return false;
           pieces.add({at, length});
           return true;
         }) != UINT64_MAX;
}

// A null region does not count: data written to it is dropped, so it has no memory to return.
void LocalKeys::find(uint32_t key) {
  key_ = key;
  const memory::Opening* const found = keys_.find(key);
  is_open_ =
      found != nullptr && found->allows_local(wanted_, pd_) && found->kind != memory::RegionKind::kNull;
  if (is_open_) region_ = *found;
}

uint64_t total_length(std::span<const ibv_sge> list) {
  uint64_t sum = 0;
  for (const ibv_sge& sge : list) sum += sge.length;
  return sum;
}

ScatterResult scatter(memory::KeyFinder& keys, memory::PdId pd, std::span<const ibv_sge> list,
                      uint64_t offset, ConstBytes data) {
  if (offset == 0 && !list.empty() && !data.empty() && data.size() <= list[0].length) [[likely]] {
    return write_to(keys, pd, list[0].addr, list[0].lkey, data) ? ScatterResult::kDone
                                                                : ScatterResult::kProtection;
  }
  return scatter_parts(keys, pd, list, offset, data);
}

std::byte* remote_memory(memory::KeyFinder& keys, const RemoteUser& user, uint32_t rkey, uint64_t address,
                         uint64_t bytes, memory::Access wanted) {
  const memory::Opening* const region = keys.find(rkey);
  const bool allowed = region != nullptr && region->allows_remote(wanted, user.pd, user.qpn.value());
  return allowed ? region->at(address, bytes) : nullptr;
}

}  // namespace verbena::transport
