// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "base/unique_fd.h"

namespace verbena {

// So many descriptors wait to be closed at most. What is more stays open.
inline constexpr size_t kMaxDiscarded = 1024;

// Closes a descriptor that another process has handed us, in its own time. How long it takes to close what
// one does not know is up to who made it (a TCP socket with SO_LINGER, a file whose server does not answer):
// so a thread of its own does it. That one is started when there is something to close, ends when there is
// nothing more, and nobody waits for it: neither the caller nor the end of the process. A child after fork()
// starts one itself.
//
// Thread-safe. Never blocks; no cancellation point.
void discard(UniqueFd fd);

// How many wait, beside the one that is being closed. Each has its number until then. Thread-safe.
size_t discarding();

}  // namespace verbena
