// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/cache_line.h"
#include "base/intrusive_list.h"
#include "base/result.h"
#include "base/spin_lock.h"

namespace verbena::memory {

// Rights in a region: the bits of enum ibv_access_flags, and one of our own.
using Access = uint32_t;

// Marks the key of a memory window, which cannot be used as an L_Key. The bit is above all bits that
// applications may pass.
inline constexpr Access kRemoteOnly = 1u << 31;

// Identifies a protection domain: a key and a QP must have the same one.
using PdId = uint32_t;

// Kind of object behind a key.
enum class RegionKind : uint8_t {
  kMemory,   // a memory region
  kNull,     // a null memory region: reads as zeros, writes are dropped
  kWindow1,  // a memory window of type 1
  kWindow2,  // of type 2B: bound to a QP as well
};

// The access that a key gives: a range of user memory, the rights in this range, and the QPs that have these
// rights. A plain value.
//
// An unbound window has a key, but no rights and no bytes. So a lookup need not distinguish regions and
// windows.
struct Opening {
  std::byte* base = nullptr;  // location of `iova` in this process
  uint64_t iova = 0;          // first address of the range, as requests name it
  uint64_t length = 0;
  Access access = 0;
  PdId pd = 0;
  uint32_t key = 0;
  // The QPs that may use the key: those whose QPN equals `qpn` in the bits of `qpn_mask`. With mask 0, every
  // QP may.
  uint32_t qpn = 0;
  uint32_t qpn_mask = 0;
  RegionKind kind = RegionKind::kMemory;

  // Returns whether a QP of protection domain `of_pd` may use the key as an L_Key, with the rights `wanted`.
  bool allows_local(Access wanted, PdId of_pd) const {
    return ((~access & wanted) | (access & kRemoteOnly) | (pd ^ of_pd)) == 0;
  }
  // Returns whether the peer of a QP with this protection domain and number may use the key as an R_Key, with
  // the rights `wanted`.
  bool allows_remote(Access wanted, PdId of_pd, uint32_t of_qpn) const {
    return ((~access & wanted) | (pd ^ of_pd) | ((qpn ^ of_qpn) & qpn_mask)) == 0;
  }

  // Returns the location of bytes [address, address + bytes) in this process; nullptr if they are not all in
  // the range. With `bytes` 0, any address from the start to the end of the range is valid. (A region of all
  // addresses, as for implicit on-demand paging, has base 0. There, address 0 gives nullptr, too; no memory
  // is there.) For a null region, every address gives the same place: zeros that can be read, but not
  // written. So callers that write test `kind` first.
  std::byte* at(uint64_t address, uint64_t bytes) const {
    if (address < iova) return nullptr;
    const uint64_t offset = address - iova;
    if (offset > length || bytes > length - offset) return nullptr;
    // All addresses of a null region are the same place.
    const uint64_t kept = kind == RegionKind::kNull ? 0 : offset;
    return reinterpret_cast<std::byte*>(reinterpret_cast<uintptr_t>(base) + kept);
  }
};

// An Opening that any thread may read while one thread writes it (a sequence lock): readers get a consistent
// value. One cache line, which readers do not write.
class alignas(kCacheLine) PublishedOpening {
 public:
  // Publishes a new value. Only one thread at a time may call it.
  void write(const Opening& from) {
    const uint32_t before = sequence_.load(std::memory_order_relaxed);
    sequence_.store(before + 1, std::memory_order_relaxed);
    // The release order of a word's store keeps it after the store of the odd number. In try_read(), the
    // acquire order of a word's load keeps it before the second load of the number. (A bare fence would do,
    // but ThreadSanitizer knows none.)
    const auto put = [this](size_t word, uint64_t value) {
      words_[word].store(value, std::memory_order_release);
    };
    put(0, reinterpret_cast<uintptr_t>(from.base));
    put(1, from.iova);
    put(2, from.length);
    put(3, uint64_t{from.access} << 32 | from.pd);
    put(4, uint64_t{from.key} << 32 | from.qpn);
    put(5, uint64_t{from.qpn_mask} << 32 | static_cast<uint32_t>(from.kind));
    sequence_.store(before + 2, std::memory_order_release);
  }

  // Returns the value that was written last. If a write is in progress, waits until the write has ended.
  Opening read() const {
    Opening found;
    if (try_read(found)) [[likely]]
      return found;
    return read_while_written();
  }

 private:
  // Returns false if a write happened meanwhile.
  bool try_read(Opening& found) const {
    const uint32_t before = sequence_.load(std::memory_order_acquire);
    const auto get = [this](size_t word) { return words_[word].load(std::memory_order_acquire); };
    const uint64_t words[] = {get(0), get(1), get(2), get(3), get(4), get(5)};
    if ((before & 1) != 0 || sequence_.load(std::memory_order_relaxed) != before) return false;
    found = {.base = reinterpret_cast<std::byte*>(words[0]),
             .iova = words[1],
             .length = words[2],
             .access = static_cast<Access>(words[3] >> 32),
             .pd = static_cast<PdId>(words[3]),
             .key = static_cast<uint32_t>(words[4] >> 32),
             .qpn = static_cast<uint32_t>(words[4]),
             .qpn_mask = static_cast<uint32_t>(words[5] >> 32),
             .kind = static_cast<RegionKind>(static_cast<uint32_t>(words[5]))};
    return true;
  }

  [[gnu::noinline]] Opening read_while_written() const {
    Opening found;
    for (int tries = 0; !try_read(found); ++tries) pause(tries);
    return found;
  }

  // Writing takes some nanoseconds, unless the writer was preempted.
  static void pause(int tries) {
    if (tries < 100) {
      cpu_relax();
    } else {
      sched_yield();
    }
  }

  std::atomic<uint32_t> sequence_{0};  // odd while it is being written
  std::array<std::atomic<uint64_t>, 6> words_{};
};
static_assert(sizeof(PublishedOpening) == kCacheLine);

// The object behind a key: a memory region, or a memory window onto part of a region. Owns neither the memory
// nor the key. Only writers that hold the KeyTable's lock may use the members inherited from Opening and the
// lists. Readers of the key get the Opening that was published last.
struct Region : Opening {
  // Links between regions and windows (window.h).
  Region* parent = nullptr;                                   // a bound window's region
  ListHook bound_to_region{};                                 // a window is in its region's list while bound,
  ListHook bound_to_qp{};                                     // and one of type 2 in its QP's, too
  IntrusiveList<Region, &Region::bound_to_region> windows{};  // windows onto this region

  // Publishes the present values: from now on, readers of the key get them.
  void publish() { published.write(*this); }
  PublishedOpening published;
};

// The type 2 windows bound to a QP.
using BoundWindows = IntrusiveList<Region, &Region::bound_to_qp>;

// Makes `region` a null memory region (ibv_alloc_null_mr(3)) in this protection domain, for local use only.
// Errors: ENOMEM.
Result<void> make_null(Region& region, PdId pd);

// Checks that every page of [addr, addr + length) is mapped, and writable if `writable`. Brings the pages in,
// as pinning would. Errors: EFAULT if a page is missing or lacks the right; EINVAL if the range wraps around;
// ENOMEM. Length 0 is valid.
Result<void> check_pages(const void* addr, uint64_t length, bool writable);

// Memory placement extensions (IBTA volume 1 release 1.5, annex A19). The verbs.h that we build with has only
// half of them; the numbers are those of later versions.

// Access flags (enum ibv_access_flags) that a region and a QP need for FLUSH.
inline constexpr Access kFlushGlobal = 1u << 8;      // IBV_ACCESS_FLUSH_GLOBAL
inline constexpr Access kFlushPersistent = 1u << 9;  // IBV_ACCESS_FLUSH_PERSISTENT

// Placement types of a FLUSH, a set (annex A19.3.1; enum ibv_placement_type).
inline constexpr uint8_t kPlacementGlobal = 1 << 0;
inline constexpr uint8_t kPlacementPersistent = 1 << 1;
// Selectivity of a FLUSH (enum ibv_selectivity_level).
inline constexpr uint8_t kSelectRange = 0;
inline constexpr uint8_t kSelectRegion = 1;

// Returns the access flags that the placement types of a FLUSH need.
constexpr Access flush_access(uint8_t placement) {
  return ((placement & kPlacementGlobal) != 0 ? kFlushGlobal : 0) |
         ((placement & kPlacementPersistent) != 0 ? kFlushPersistent : 0);
}

// Makes this thread's earlier writes visible to everyone that can see the memory.
inline void make_visible() {
  // Our stores are coherent already: they must only be done before this function returns. An atomic operation
  // does that. (A bare fence would do, but ThreadSanitizer knows none.) Each thread has a variable of its
  // own, so that shards do not wait for each other.
  static thread_local std::atomic<uint32_t> order{0};
  order.fetch_add(1, std::memory_order_seq_cst);
}

}  // namespace verbena::memory
