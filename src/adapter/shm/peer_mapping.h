// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "adapter/memory/file_mapping.h"
#include "adapter/shm/process_folder.h"
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

// Shared memory of another process, in ours.
struct PeerMapping {
  memory::FileMapping memory;
  bool writable = false;
};

// Maps it, by its file (open_peer_file()), or as a System V segment (attach_peer_segment()); for writing only
// if the process has it so. REQUIRES as FileMapping::create(), and as they do.
Result<PeerMapping> map_peer_memory(const ProcessFolder& process, const SharedStretch& stretch,
                                    uint64_t length, dev_t internal);

// Attaches a System V segment of another process, as its permissions let any process do, also when it has
// been removed already (IPC_RMID), and gives back all of it but the stretch. It counts as attached
// (shm_nattch) as long as the mapping lives. Only for reading where the process, or the permissions, do not
// let us write.
//
// It is the very segment: identifiers are of an IPC namespace, which must be the calling thread's, too; and
// what has been attached is what the process has, by what the kernel says of both. (Who moves to another
// namespace keeps what it has attached. Between processes of one user, and with a privilege, two segments of
// one identifier could so be confused; the kernel tells nobody which namespace a segment is of.)
//
// Nothing here blocks. Not to be cancelled in (CancellationOff). Errors: ENOENT: it is not a segment, or not
// to be found from here. The kernel's.
Result<PeerMapping> attach_peer_segment(const ProcessFolder& process, const SharedStretch& stretch,
                                        uint64_t length);

}  // namespace verbena::engine
