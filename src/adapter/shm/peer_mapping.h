// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "adapter/memory/file_mapping.h"
#include "adapter/shm/process_folder.h"
#include "adapter/shm/process_map.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace verbena::engine {

// Opens the file behind shared memory of another process, as far as the kernel lets us. It looks by the path
// that the file was opened by, among the process's open files, and among its mappings (/proc/PID/map_files).
// Only that very file is opened, and only if it lies in memory (tmpfs, hugetlbfs). So nothing that is done
// with it waits for a disk or a network. Does not block. REQUIRES: cancellation is off (CancellationOff).
//
// `internal`: the device number (st_dev) of files without a name, as memfd_create(2) makes them. Errors:
// ENOENT: the file cannot be found, or is not such a file.
Result<UniqueFd> open_peer_file(const ProcessFolder& process, const SharedStretch& stretch, dev_t internal);

// Returns the unit in bytes at whose multiples the file can be mapped: the page size of its file system.
uint64_t mapping_unit(int file);

// Another process's shared memory, mapped in this process.
struct PeerMapping {
  memory::FileMapping memory;
  bool writable = false;
};

// Maps `length` bytes of the stretch: by its file (open_peer_file()), else as a System V segment
// (attach_peer_segment()). The mapping is writable only if the process's own is. REQUIRES: as
// FileMapping::create(), and as both of these functions. Errors: EINVAL: the file is shorter; theirs.
Result<PeerMapping> map_peer_memory(const ProcessFolder& process, const SharedStretch& stretch,
                                    uint64_t length, dev_t internal);

// Attaches a System V segment of another process, and unmaps all of it but the stretch. This works also when
// the segment has been removed (IPC_RMID). It counts as attached (shm_nattch) as long as the mapping lives.
// The mapping is read-only where the process has it read-only, or the segment's permissions forbid writing.
//
// The attached segment is checked to be the same one, as identifiers belong to an IPC namespace: the calling
// thread must be in the process's namespace, and the kernel must show the same file and name for both. (One
// case remains: a process that moves to another namespace keeps its segments. Then two segments with one
// identifier could be confused, between processes of one user and only with a privilege. The kernel does not
// show the namespace of a segment.)
//
// Does not block. REQUIRES: cancellation is off (CancellationOff). Errors: ENOENT: it is no segment, or
// cannot be found from here; those of shmat(2).
Result<PeerMapping> attach_peer_segment(const ProcessFolder& process, const SharedStretch& stretch,
                                        uint64_t length);

}  // namespace verbena::engine
