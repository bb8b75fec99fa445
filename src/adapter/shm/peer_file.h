// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "adapter/shm/process_map.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace verbena::engine {

// Opens the file behind shared memory of another process, as far as the kernel lets us: from among its open
// files, by the path that it was opened by, or as one of its mappings. It is the very file, and one that lies
// in memory (tmpfs, hugetlbfs), so that nothing that is done with it waits for a disk or a network. Nothing
// here blocks, nor opens any other file than that. Not to be cancelled in (CancellationOff).
//
// `internal`: the device of files without a name, as memfd_create(2) makes them.
// Errors: ENOENT: there is no way to it, or it is not such a file. The kernel's.
Result<UniqueFd> open_peer_file(const ProcessFolder& process, const SharedStretch& stretch, dev_t internal);

// At which multiples the file can be mapped: those of its pages' size.
uint64_t mapping_unit(int file);

}  // namespace verbena::engine
