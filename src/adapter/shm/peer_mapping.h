// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "adapter/memory/file_mapping.h"
#include "adapter/shm/process_folder.h"
#include "adapter/shm/process_map.h"
#include "base/result.h"

namespace verbena::engine {

// Shared memory of another process, in ours.
struct PeerMapping {
  memory::FileMapping memory;
  bool writable = false;
};

// Maps it, by its file (peer_file.h), or as a System V segment (peer_segment.h); for writing only if the
// process has it so. REQUIRES as FileMapping::create(), and as they do.
Result<PeerMapping> map_peer_memory(const ProcessFolder& process, const SharedStretch& stretch,
                                    uint64_t length, dev_t internal);

}  // namespace verbena::engine
