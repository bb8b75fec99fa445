// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "adapter/memory/key_table.h"
#include "adapter/memory/region.h"

namespace verbena::memory {

// Memory windows: rights in a part of a region, given and taken by requests in a send queue (IBTA volume 1,
// 10.6.7). Windows of type 1 belong to a protection domain and may be bound again at any time, which gives
// them a new key. Windows of type 2 also belong to a QP while bound (type 2B). They take the key that the
// request names, and must be invalidated before they are bound again.
//
// Thread-safe by the key table's lock. A finished bind or invalidation holds for every later lookup of the
// key. Another shard may still be executing a packet that looked up the previous binding of a type 1 window.
// The region stays registered meanwhile, because deregistration waits for this packet. A window of type 2
// belongs to one QP, and so to one shard, so no other thread uses the window.
//
// The key table also publishes each change to other processes, which may access a window directly
// (KeyPublisher). KeyTable::users() tells a caller when these accesses have ended.

// Parameters of a bind request, and the QP it was posted to.
struct WindowBinding {
  uint32_t window_key = 0;  // names the window: a key with the same upper 24 bits
  uint32_t new_key = 0;     // its low 8 bits become those of the window's key
  uint32_t region_key = 0;  // the region's L_Key; ignored when length is 0
  uint64_t address = 0;     // start of the window, as an address of the region
  uint64_t length = 0;
  Access access = 0;
  PdId pd = 0;
  uint32_t qpn = 0;
};

// Makes `window` an unbound window of this type. REQUIRES: type is kWindow1 or kWindow2; the window is in no
// table yet
void make_window(Region& window, RegionKind type, PdId pd);

// Executes a bind request. Returns false, without effect, if the binding rules forbid it. `of_qp` is the list
// of windows bound to the request's QP; a type 2 window is added to it.
bool bind_window(KeyTable& keys, const WindowBinding& binding, BoundWindows& of_qp);

// Executes an invalidation, requested by the QP itself or by its peer: the key gives no access until the
// window is bound again. Returns false, without effect, if no window of type 2 has exactly this key in this
// protection domain, or if the window is bound to another QP. An unbound window stays unbound, as in the
// kernel's rxe. (Regions that were not registered by a request cannot be invalidated by one.)
bool invalidate_window(KeyTable& keys, uint32_t key, PdId pd, uint32_t qpn);

// Removes the window's range and rights; the window may already be unbound. Called before the window is
// deallocated, or its QP or region is destroyed. REQUIRES: the key table's lock is held
void unbind_window(KeyTable& keys, Region& window);
// Unbinds all windows of a list. REQUIRES: the key table's lock is not held
template <class Windows>
void unbind_all(KeyTable& keys, Windows& windows) {
  keys.locked([&] {
    while (!windows.empty()) unbind_window(keys, windows.front());
  });
}

}  // namespace verbena::memory
