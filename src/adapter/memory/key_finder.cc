// SPDX-License-Identifier: Apache-2.0
#include "adapter/memory/key_finder.h"

#include <utility>

namespace verbena::memory {

// Not inlined: its callers would have to prepare for it on each call.
const Opening* KeyFinder::look_up(uint32_t key, uint64_t changes, Remembered& known) const {
  const Opening* const none = nullptr;
  return table_->open(key, none, [&](const Opening& found) {
    known.changes = changes;
    known.opening = found;
    return &std::as_const(known.opening);
  });
}

}  // namespace verbena::memory
