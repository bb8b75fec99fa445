// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/result.h"

namespace verbena::memory {

// How check_pages() works on kernels before 5.14: touches every page under guard, changing nothing. Unlike
// there, device memory passes, and is read.
// REQUIRES: begin and bytes are multiples of the page size
Result<void> touch_pages(uintptr_t begin, uintptr_t bytes, bool writable);

}  // namespace verbena::memory
