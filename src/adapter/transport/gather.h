// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>

#include <infiniband/verbs.h>

#include "adapter/memory/key_table.h"
#include "adapter/queues/work_queue.h"
#include "base/bytes.h"
#include "wire/roce/qpn.h"

namespace verbena::transport {

// The memory of a slice of a gather list, as a list of pieces in this process's memory. Each packet builds a
// Pieces object, so the unused elements stay uninitialized. Initializing them would take longer than all
// other work for a small packet.
class Pieces {
 public:
  std::span<const ConstBytes> get() const { return {begin(), count_}; }
  uint32_t count() const { return count_; }
  // Appends a piece. REQUIRES: count() < queues::kMaxSge
  void add(ConstBytes piece) { std::construct_at(begin() + count_++, piece); }

 private:
  static_assert(std::is_trivially_copyable_v<ConstBytes>);
  ConstBytes* begin() { return reinterpret_cast<ConstBytes*>(space_); }
  const ConstBytes* begin() const { return reinterpret_cast<const ConstBytes*>(space_); }

  uint32_t count_ = 0;
  alignas(ConstBytes) std::byte space_[queues::kMaxSge * sizeof(ConstBytes)];
};

// Returns the memory of the first `bytes` bytes at the address of a gather list entry. Returns nullptr if the
// entry's key is unknown or does not allow the access `wanted`, or if the bytes leave the key's region.
inline std::byte* local_memory(memory::KeyFinder& keys, memory::PdId pd, const ibv_sge& sge, uint32_t bytes,
                               memory::Access wanted) {
  const memory::Opening* const region = keys.find(sge.lkey);
  return region != nullptr && region->allows_local(wanted, pd) ? region->at(sge.addr, bytes) : nullptr;
}

// The general case of gather(), for lists of any length. Only gather() calls this.
bool gather_parts(memory::KeyFinder& keys, memory::PdId pd, std::span<const ibv_sge> list, uint64_t offset,
                  uint32_t bytes, memory::Access wanted, Pieces& pieces);

// Appends the memory of bytes [offset, offset + bytes) of the list to `pieces`. Returns false if a key is
// unknown, of another protection domain or without the rights `wanted` (0: read), or if the range leaves its
// region. Checks only the entries that the range touches. REQUIRES: the list holds offset + bytes bytes
inline bool gather(memory::KeyFinder& keys, memory::PdId pd, std::span<const ibv_sge> list, uint64_t offset,
                   uint32_t bytes, memory::Access wanted, Pieces& pieces) {
  if (list.size() != 1 || bytes == 0 || offset + bytes > list[0].length) [[unlikely]]
    return gather_parts(keys, pd, list, offset, bytes, wanted, pieces);
  const ibv_sge part{list[0].addr + offset, bytes, list[0].lkey};
  const std::byte* const at = local_memory(keys, pd, part, bytes, wanted);
  if (at != nullptr) pieces.add({at, bytes});
  return at != nullptr;
}

// Resolves the L_Keys of consecutive requests. Caches the last key, since most requests use the key of the
// request before. An object is valid within one reader section (adapter/memory/key_table.h).
class LocalKeys {
 public:
  LocalKeys(memory::KeyFinder& keys, memory::PdId pd, memory::Access wanted)
      : keys_(keys), pd_(pd), wanted_(wanted) {}

  // Returns the memory of the first `bytes` bytes of the entry. Returns nullptr if the key does not allow the
  // access, if the bytes leave the region, or for a null region.
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

// Returns the sum of the lengths of a list's entries, in bytes.
uint64_t total_length(std::span<const ibv_sge> list);

// Result of placing data into a scatter list. kNotFetched: a rendezvous payload could not be fetched from its
// sender's memory (LentPayload); scatter() never returns it.
enum class ScatterResult : uint8_t { kDone, kTooLong, kProtection, kNotFetched };

// Writes `data` to the list's memory from byte `offset` on; drops data for a null region. Returns kTooLong if
// the list ends before the data, kProtection if a key does not allow the write or the memory is gone. After
// an error, a part of the data may have been written.
ScatterResult scatter(memory::KeyFinder& keys, memory::PdId pd, std::span<const ibv_sge> list,
                      uint64_t offset, ConstBytes data);

// Identifies the QP whose peer uses a remote key. Regions check the protection domain, type 2 windows also
// the QPN.
struct RemoteUser {
  memory::PdId pd = 0;
  roce::Qpn qpn;
};

// Returns the memory of [address, address + bytes) behind a remote key. Returns nullptr if the region or
// window does not allow the access, or does not contain the range.
std::byte* remote_memory(memory::KeyFinder& keys, const RemoteUser& user, uint32_t rkey, uint64_t address,
                         uint64_t bytes, memory::Access wanted);

}  // namespace verbena::transport
