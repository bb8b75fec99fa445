// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "base/intrusive_list.h"
#include "base/result.h"

namespace verbena::memory {

// Rights in a region: the bits of enum ibv_access_flags, and one of our own.
using Access = uint32_t;

// The key is no L_Key: it is a memory window's. Above all bits that applications may pass.
inline constexpr Access kRemoteOnly = 1u << 31;

// Identifies a protection domain: what a key and a QP must share.
using PdId = uint32_t;

// What stands behind a key.
enum class RegionKind : uint8_t {
  kMemory,   // a memory region
  kNull,     // a null memory region: reads as zeros, and what is written to it is dropped
  kWindow1,  // a memory window of type 1
  kWindow2,  // of type 2B: bound to a QP as well
};

// What a key gives access to: a registered stretch of user memory, or a window onto a part of one. Plain
// data; it owns neither the memory nor its key.
//
// A window that is not bound has its key, and no rights, in no bytes: so whoever looks a key up need not know
// whether there is a region or a window behind it.
struct Region {
  std::byte* base = nullptr;  // where iova lies in this process
  uint64_t iova = 0;          // what remote and local addresses are relative to
  uint64_t length = 0;
  Access access = 0;
  PdId pd = 0;
  uint32_t key = 0;
  // The QPs that may use it: those whose number is `qpn` in the bits of `qpn_mask`. Mask 0: every QP.
  uint32_t qpn = 0;
  uint32_t qpn_mask = 0;
  RegionKind kind = RegionKind::kMemory;
  // What remains of an offset: all of it; none for a null region, all of which is the same place.
  uint64_t offset_mask = UINT64_MAX;

  // Windows (window.h).
  Region* parent = nullptr;                                   // a bound window's region
  ListHook bound_to_region{};                                 // a window is in its region's list while bound,
  ListHook bound_to_qp{};                                     // and one of type 2 in its QP's
  IntrusiveList<Region, &Region::bound_to_region> windows{};  // onto this region

  // Whether a QP of this protection domain may use the key as an L_Key, for what is wanted.
  bool allows_local(Access wanted, PdId of_pd) const {
    return ((~access & wanted) | (access & kRemoteOnly) | (pd ^ of_pd)) == 0;
  }
  // Whether the peer of a QP with this protection domain and number may use the key as an R_Key.
  bool allows_remote(Access wanted, PdId of_pd, uint32_t of_qpn) const {
    return ((~access & wanted) | (pd ^ of_pd) | ((qpn ^ of_qpn) & qpn_mask)) == 0;
  }

  // The bytes [address, address + bytes) in this process, or nullptr when they do not all lie in the region.
  // Zero bytes lie in it anywhere from its start to its end. (For a region that holds all addresses, as
  // implicit on-demand paging makes them, null is also where address 0 lies; nothing does.)
  std::byte* at(uint64_t address, uint64_t bytes) const {
    if (address < iova) return nullptr;
    const uint64_t offset = address - iova;
    if (offset > length || bytes > length - offset) return nullptr;
    return reinterpret_cast<std::byte*>(reinterpret_cast<uintptr_t>(base) + (offset & offset_mask));
  }
};

// The type 2 windows bound to a QP.
using BoundWindows = IntrusiveList<Region, &Region::bound_to_qp>;

// Makes `region` a null region in this protection domain, for local use alone. Errors: ENOMEM.
Result<void> make_null(Region& region, PdId pd);

// Checks that every page of [addr, addr + length) is mapped, and writable if `writable`, and brings the pages
// in, as pinning would. EFAULT when some page is not there or lacks the right, EINVAL when the range wraps.
// Length 0 is valid.
Result<void> check_pages(const void* addr, uint64_t length, bool writable);

}  // namespace verbena::memory
