// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "base/unique_fd.h"

namespace verbena {

// The maximum number of descriptors that wait to be closed. Beyond it, discard() logs a warning and leaves
// the descriptor open for good.
inline constexpr size_t kMaxDiscarded = 1024;

// Closes a descriptor that came from another process, on a background thread. close() of an unknown file may
// block as long as the other process wishes: a TCP socket with SO_LINGER, or a file whose server does not
// answer. The thread is started on demand and ends when nothing is left to close. Neither the caller nor the
// exit of the process waits for the thread. A child after fork() starts its own thread.
//
// Thread-safe. Never blocks; no cancellation point.
void discard(UniqueFd fd);

// Returns the number of descriptors that wait to be closed, without the one that is being closed. Waiting
// descriptors still count against RLIMIT_NOFILE. Thread-safe.
size_t discarding();

}  // namespace verbena
