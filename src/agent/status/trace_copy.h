// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "base/result.h"
#include "base/unique_fd.h"

namespace verbena::agent {

// Functions that copy a slot's trace rings (control/protocol/trace_ring.h), which are at `offset` in a file.
// They copy only the used part of the rings, to the same offsets within the rings; the rest is a hole. They
// do not trust the file's content, and do not wait for its lock. ENODATA: the rings were never used.

// Copies the rings into another file. Returns the number of bytes.
Result<size_t> copy_rings(int from, size_t offset, int to, size_t to_offset);

// The copy in a new read-only file, at offset 0.
struct TraceCopy {
  UniqueFd file;
  size_t bytes = 0;
};
Result<TraceCopy> copy_rings(int from, size_t offset);

}  // namespace verbena::agent
