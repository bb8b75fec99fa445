// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "base/result.h"
#include "base/unique_fd.h"

namespace verbena::agent {

// The two functions below copy trace rings (control/protocol/trace_ring.h), which are at `offset` in the file
// `from`. They copy only the used part of the rings, to the same offsets within the copy; the rest is a hole.
// They do not trust the content of `from`, and do not wait for the rings' lock. ENODATA if the rings were
// never used.

// Copies the rings into the file `to` at `to_offset`. Returns the number of bytes of the used parts.
Result<size_t> copy_rings(int from, size_t offset, int to, size_t to_offset);

// A copy of trace rings, at offset 0 of a new file that is sealed against writing.
struct TraceCopy {
  UniqueFd file;
  size_t bytes = 0;
};
Result<TraceCopy> copy_rings(int from, size_t offset);

}  // namespace verbena::agent
