// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "base/result.h"
#include "base/unique_fd.h"

namespace verbena::agent {

// Copies of a slot's rings (control/protocol/trace_ring.h), which lie at `offset` of some file. Of these only
// what was ever used is copied, to the same place of the rings: what is left is a hole. Nothing in the file
// is trusted, and nothing waits for its lock. ENODATA: nothing was used.

// Into another file. Answers how many bytes.
Result<size_t> copy_rings(int from, size_t offset, int to, size_t to_offset);

// Into a new one, at its beginning, which nobody can change any more.
struct TraceCopy {
  UniqueFd file;
  size_t bytes = 0;
};
Result<TraceCopy> copy_rings(int from, size_t offset);

}  // namespace verbena::agent
