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

std::optional<memory::Opening> local_region(const memory::KeyTable& keys, memory::PdId pd, uint32_t lkey,
                                            memory::Access wanted) {
  auto region = keys.open(lkey);
  if (region && !region->allows_local(wanted, pd)) region.reset();
  return region;
}

// False: a fault, or the region does not hold it. What is written to a null region goes nowhere.
bool store(const memory::Opening& region, uint64_t address, ConstBytes data) {
  if (region.kind == memory::RegionKind::kNull) return true;
  std::byte* to = region.at(address, data.size());
  return to != nullptr && memory::copy_guarded(to, data);
}

}  // namespace

bool gather(const memory::KeyTable& keys, memory::PdId pd, std::span<const ibv_sge> list, uint64_t offset,
            uint32_t bytes, memory::Access wanted, Pieces& pieces) {
  return walk(list, offset, bytes, [&](uint64_t address, uint32_t length, uint32_t lkey) {
           const auto region = local_region(keys, pd, lkey, wanted);
           const std::byte* at = region ? region->at(address, length) : nullptr;
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
        const auto region = local_region(keys, pd, lkey, IBV_ACCESS_LOCAL_WRITE);
        if (!region || !store(*region, address, {from, length})) return false;
        from += length;
        return true;
      });
  if (covered == UINT64_MAX) return ScatterResult::kProtection;
  return covered == data.size() ? ScatterResult::kDone : ScatterResult::kTooLong;
}

std::byte* remote_memory(const memory::KeyTable& keys, const RemoteUser& user, uint32_t rkey,
                         uint64_t address, uint64_t bytes, memory::Access wanted) {
  const auto region = keys.open(rkey);
  if (!region || !region->allows_remote(wanted, user.pd, user.qpn.value())) return nullptr;
  return region->at(address, bytes);
}

}  // namespace verbena::transport
