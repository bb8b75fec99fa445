// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "adapter/memory/opening.h"
#include "base/intrusive_list.h"
#include "base/result.h"

namespace verbena::memory {

// What a key stands for: a registered stretch of user memory, or a window onto a part of one. It owns neither
// the memory nor its key. Its Opening and its lists are for those who change them, under the lock of its
// KeyTable; what others find by the key is the Opening that was published last.
struct Region : Opening {
  // Windows (window.h).
  Region* parent = nullptr;                                   // a bound window's region
  ListHook bound_to_region{};                                 // a window is in its region's list while bound,
  ListHook bound_to_qp{};                                     // and one of type 2 in its QP's
  IntrusiveList<Region, &Region::bound_to_region> windows{};  // onto this region

  // From now on a reader of the key finds it as it is now.
  void publish() { published.write(*this); }
  PublishedOpening published;
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
