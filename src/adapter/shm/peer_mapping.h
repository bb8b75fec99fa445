// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "adapter/memory/file_mapping.h"
#include "adapter/shm/process_folder.h"
#include "adapter/shm/process_map.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace verbena::engine {

// Opens the file behind shared memory of another process, as far as the kernel lets us. Looks for the file at
// the path that the kernel shows for the mapping, then among the process's open files. A file without a name
// is also looked for in /proc/PID/map_files. Opens a file only if it is this very file, and only if it lies
// in memory (tmpfs, hugetlbfs). So no later use of the file waits for a disk or a network. Does not block.
// REQUIRES: cancellation is off (CancellationOff).
//
// `internal`: the device number (st_dev) of files without a name, as memfd_create(2) makes them. Errors:
// ENOENT if the file cannot be found, or is not such a file.
Result<UniqueFd> open_peer_file(const ProcessFolder& process, const SharedStretch& stretch, dev_t internal);

// Returns the unit in bytes at whose multiples the file can be mapped: the page size of its file system.
uint64_t mapping_unit(int file);

// Another process's shared memory, mapped in this process.
struct PeerMapping {
  memory::FileMapping memory;
  bool writable = false;
};

// Maps `length` bytes of the stretch: by its file (open_peer_file()), or, if the file cannot be opened, as a
// System V segment (attach_peer_segment()). The mapping is writable only if the other process's own mapping
// is. REQUIRES: as for FileMapping::create(), open_peer_file() and attach_peer_segment(). Errors: EINVAL if
// the file is shorter than the stretch; those of FileMapping::create() and attach_peer_segment().
Result<PeerMapping> map_peer_memory(const ProcessFolder& process, const SharedStretch& stretch,
                                    uint64_t length, dev_t internal);

// Attaches a System V segment of another process, and unmaps all of it but the stretch. This also works when
// the segment has been removed (IPC_RMID). The segment counts as attached (shm_nattch) as long as the mapping
// lives. The mapping is read-only if the process's own mapping is, or if the segment's permissions forbid
// writing.
//
// Each IPC namespace has its own identifiers, so the identifier might name another segment here. Therefore
// the calling thread must be in the process's IPC namespace, and the kernel must show the same file and name
// for both attachments. (One case remains: a process that moves to another namespace keeps its segments. Then
// two segments with one identifier could be confused, but only between processes of one user, and only if the
// process had the privilege to move. The kernel does not show the namespace of a segment.)
//
// Does not block. REQUIRES: cancellation is off (CancellationOff). Errors: ENOENT if the stretch is no
// segment, or its segment cannot be found from here; those of shmat(2).
Result<PeerMapping> attach_peer_segment(const ProcessFolder& process, const SharedStretch& stretch,
                                        uint64_t length);

}  // namespace verbena::engine
