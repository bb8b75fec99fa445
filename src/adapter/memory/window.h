// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "adapter/memory/key_table.h"
#include "adapter/memory/region.h"

namespace verbena::memory {

// Memory windows: rights in a part of a region, given and taken by requests in a send queue (IBTA volume 1,
// 10.6.7). Windows of type 1 belong to a protection domain and are bound again at any time, which gives them
// a new key; those of type 2 belong, while bound, to a QP too (type 2B), take the key that the request names,
// and must be invalidated before they are bound again.
//
// Pure, and thread-safe by the key table's lock. A bind or invalidation that is done holds for every lookup
// from then on. A window of type 2 is one QP's, and so one shard's: nobody is in the middle of using it. Of
// one of type 1 the packet that another shard has at hand may still be carried out; its region is registered
// as before, and deregistering that waits for the packet. Other processes that use a window by themselves
// (KeyPublisher) are asked to go by the same change, and who must know that they have gone asks for
// KeyTable::users().

// What a bind request asks for, and the QP it was posted to.
struct WindowBinding {
  uint32_t window_key = 0;  // the window: any key of its identity
  uint32_t new_key = 0;     // its tag becomes the window's
  uint32_t region_key = 0;  // the region's L_Key; not looked at when length is 0
  uint64_t address = 0;     // where the window begins, as the region's own keys count
  uint64_t length = 0;
  Access access = 0;
  PdId pd = 0;
  uint32_t qpn = 0;
};

// Makes `window` one of no bytes, of this type.
// REQUIRES: type is kWindow1 or kWindow2; the window is in no table yet
void make_window(Region& window, RegionKind type, PdId pd);

// Executes a bind request. False, and nothing is changed, when the rules forbid it. `of_qp`: the windows that
// are bound to the request's QP.
bool bind_window(KeyTable& keys, const WindowBinding& binding, BoundWindows& of_qp);

// Executes an invalidation, asked for by the QP's own request or by its peer's: the key opens nothing until
// the window is bound again. False, and nothing is changed, when there is no window of type 2 with this very
// key in this protection domain, or it is bound to another QP. One that is not bound stays so, as with the
// kernel's rxe. (Regions that were not registered by a request cannot be invalidated by one.)
bool invalidate_window(KeyTable& keys, uint32_t key, PdId pd, uint32_t qpn);

// Takes a window's bytes and rights, whatever its state: before it is deallocated, or its QP or region ends.
// With the key table's lock.
void unbind_window(KeyTable& keys, Region& window);
// The same for all of a list. Takes the lock itself.
template <class Windows>
void unbind_all(KeyTable& keys, Windows& windows) {
  keys.locked([&] {
    while (!windows.empty()) unbind_window(keys, windows.front());
  });
}

}  // namespace verbena::memory
