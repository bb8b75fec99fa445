// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>

#include <infiniband/verbs.h>

#include "adapter/memory/key_finder.h"
#include "adapter/queues/work_queue.h"
#include "base/bytes.h"
#include "wire/roce/qpn.h"

namespace verbena::transport {

// A slice of a gather list, resolved to this process's memory. Each packet needs one, so unused elements stay
// uninitialized: to initialize them takes longer than the rest of a small packet.
class Pieces {
 public:
  std::span<const ConstBytes> get() const { return {begin(), count_}; }
  uint32_t count() const { return count_; }
  void add(ConstBytes piece) { std::construct_at(begin() + count_++, piece); }

 private:
  static_assert(std::is_trivially_copyable_v<ConstBytes>);
  ConstBytes* begin() { return reinterpret_cast<ConstBytes*>(space_); }
  const ConstBytes* begin() const { return reinterpret_cast<const ConstBytes*>(space_); }

  uint32_t count_ = 0;
  alignas(ConstBytes) std::byte space_[queues::kMaxSge * sizeof(ConstBytes)];
};

// The first `bytes` bytes of an entry's memory; nullptr where gather() would return false.
inline std::byte* local_memory(memory::KeyFinder& keys, memory::PdId pd, const ibv_sge& sge, uint32_t bytes,
                               memory::Access wanted) {
  const memory::Opening* const region = keys.find(sge.lkey);
  return region != nullptr && region->allows_local(wanted, pd) ? region->at(sge.addr, bytes) : nullptr;
}

// gather() for any list.
bool gather_parts(memory::KeyFinder& keys, memory::PdId pd, std::span<const ibv_sge> list, uint64_t offset,
                  uint32_t bytes, memory::Access wanted, Pieces& pieces);

// Resolves bytes [offset, offset + bytes) of the list. False: a key is unknown, of another protection domain
// or without the rights `wanted` (0: read), or the range leaves its region. Checks only the entries in the
// slice. REQUIRES: the list holds offset + bytes bytes
inline bool gather(memory::KeyFinder& keys, memory::PdId pd, std::span<const ibv_sge> list, uint64_t offset,
                   uint32_t bytes, memory::Access wanted, Pieces& pieces) {
  if (list.size() != 1 || bytes == 0 || offset + bytes > list[0].length) [[unlikely]]
    return gather_parts(keys, pd, list, offset, bytes, wanted, pieces);
  const ibv_sge part{list[0].addr + offset, bytes, list[0].lkey};
  const std::byte* const at = local_memory(keys, pd, part, bytes, wanted);
  if (at != nullptr) pieces.add({at, bytes});
  return at != nullptr;
}

// Resolves the L_Keys of consecutive requests, and remembers the last one, as most use the same key. Valid
// within one reader section (adapter/memory/key_table.h).
class LocalKeys {
 public:
  LocalKeys(memory::KeyFinder& keys, memory::PdId pd, memory::Access wanted)
      : keys_(keys), pd_(pd), wanted_(wanted) {}

  // The first `bytes` bytes of the entry's memory; nullptr if missing or not allowed.
  std::byte* at(const ibv_sge& sge, uint32_t bytes) {
    if (sge.lkey != key_) find(sge.lkey);
    return is_open_ ? region_.at(sge.addr, bytes) : nullptr;
  }

 private:
  void find(uint32_t key);

  memory::KeyFinder& keys_;
  const memory::PdId pd_;
  const memory::Access wanted_;
  uint32_t key_ = 0;  // no key has this value
  bool is_open_ = false;
  memory::Opening region_;
};

// The sum of a list's lengths.
uint64_t total_length(std::span<const ibv_sge> list);

// kNotFetched: a rendezvous payload could not be fetched (LentPayload).
enum class ScatterResult : uint8_t { kDone, kTooLong, kProtection, kNotFetched };

// Writes `data` to bytes [offset, ...) of the list's memory. kTooLong: the list ends before the data.
// kProtection: a key does not allow it, or the memory is gone. Data before the error may have been written.
ScatterResult scatter(memory::KeyFinder& keys, memory::PdId pd, std::span<const ibv_sge> list,
                      uint64_t offset, ConstBytes data);

// The QP that received packets with remote keys, as regions and windows identify it.
struct RemoteUser {
  memory::PdId pd = 0;
  roce::Qpn qpn;
};

// The memory behind a remote key, if the region or window allows the access; else nullptr.
std::byte* remote_memory(memory::KeyFinder& keys, const RemoteUser& user, uint32_t rkey, uint64_t address,
                         uint64_t bytes, memory::Access wanted);

}  // namespace verbena::transport
