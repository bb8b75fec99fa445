// SPDX-License-Identifier: Apache-2.0
#include "transport/gather.h"

#include <algorithm>

#include "memory/guarded.h"

namespace verbena::transport {
namespace {

// Walks the parts of a list that cover [offset, offset + bytes) and calls visit(address, length, lkey); stops
// at false. Returns the bytes covered, or UINT64_MAX when visit stopped it.
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

std::byte* local_memory(const memory::KeyTable& keys, memory::PdId pd, uint32_t lkey, uint64_t address,
                        uint64_t bytes, memory::Access wanted) {
  const memory::Region* region = keys.find(lkey);
  if (region == nullptr || region->pd != pd || (region->access & wanted) != wanted) return nullptr;
  return region->at(address, bytes);
}

}  // namespace

bool gather(const memory::KeyTable& keys, memory::PdId pd, std::span<const ibv_sge> list, uint64_t offset,
            uint32_t bytes, memory::Access wanted, Pieces& pieces) {
  return walk(list, offset, bytes, [&](uint64_t address, uint32_t length, uint32_t lkey) {
           const std::byte* at = local_memory(keys, pd, lkey, address, length, wanted);
           if (at == nullptr) return false;
           pieces.add({at, length});
           return true;
         }) != UINT64_MAX;
}

uint64_t total_length(std::span<const ibv_sge> list) {
  uint64_t sum = 0;
  for (const ibv_sge& sge : list) sum += sge.length;
  return sum;
}

ScatterResult scatter(const memory::KeyTable& keys, memory::PdId pd, std::span<const ibv_sge> list,
                      uint64_t offset, ConstBytes data) {
  const std::byte* from = data.data();
  const uint64_t covered =
      walk(list, offset, data.size(), [&](uint64_t address, uint32_t length, uint32_t lkey) {
        std::byte* to = local_memory(keys, pd, lkey, address, length, IBV_ACCESS_LOCAL_WRITE);
        if (to == nullptr || !memory::copy_guarded(to, {from, length})) return false;
        from += length;
        return true;
      });
  if (covered == UINT64_MAX) return ScatterResult::kProtection;
  return covered == data.size() ? ScatterResult::kDone : ScatterResult::kTooLong;
}

std::byte* remote_memory(const memory::KeyTable& keys, memory::PdId pd, uint32_t rkey, uint64_t address,
                         uint64_t bytes, memory::Access wanted) {
  const memory::Region* region = keys.find(rkey);
  if (region == nullptr || region->pd != pd || (region->access & wanted) != wanted) return nullptr;
  return region->at(address, bytes);
}

}  // namespace verbena::transport
