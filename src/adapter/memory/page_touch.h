// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/result.h"

namespace verbena::memory {

// Implements check_pages() on kernels before 5.14: touches every page under guard, and changes nothing.
// Unlike newer kernels, accepts device memory, which is read. Errors: EFAULT. REQUIRES: begin and bytes are
// multiples of the page size
Result<void> touch_pages(uintptr_t begin, uintptr_t bytes, bool writable);

}  // namespace verbena::memory
