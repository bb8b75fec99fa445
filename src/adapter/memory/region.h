// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "adapter/memory/opening.h"
#include "base/intrusive_list.h"
#include "base/result.h"

namespace verbena::memory {

// The object behind a key: a registered range of user memory, or a window onto a part of one. Owns neither
// the memory nor its key. Its Opening and its lists are for writers that hold the lock of its KeyTable;
// readers of the key get the Opening that was published last.
struct Region : Opening {
  // Links between regions and windows (window.h).
  Region* parent = nullptr;                                   // a bound window's region
  ListHook bound_to_region{};                                 // a window is in its region's list while bound,
  ListHook bound_to_qp{};                                     // and one of type 2 in its QP's, too
  IntrusiveList<Region, &Region::bound_to_region> windows{};  // windows onto this region

  // From now on readers of the key get the Opening as it is now.
  void publish() { published.write(*this); }
  PublishedOpening published;
};

// The type 2 windows bound to a QP.
using BoundWindows = IntrusiveList<Region, &Region::bound_to_qp>;

// Makes `region` a null region in this protection domain, for local use only. Errors: ENOMEM.
Result<void> make_null(Region& region, PdId pd);

// Checks that every page of [addr, addr + length) is mapped, and writable if `writable`. Brings the pages in,
// as pinning would. Errors: EFAULT if a page is missing or lacks the right, EINVAL if the range wraps,
// ENOMEM. Length 0 is valid.
Result<void> check_pages(const void* addr, uint64_t length, bool writable);

}  // namespace verbena::memory
