// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "adapter/shm/peer_mapping.h"
#include "base/result.h"

namespace verbena::engine {

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
