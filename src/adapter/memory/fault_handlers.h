// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ucontext.h>

namespace verbena::memory {

// Our handlers of SIGSEGV and SIGBUS, stacked with those of the application.
//
// A fault is first offered to `claim`. What it declines, and what is not a fault at all (kill(2)), gets
// exactly what the disposition that we found would have given it: a handler is called with its mask and
// flags, the default action ends the process with the same status and a core of the faulting instruction.
//
// The application may install a handler over ours, keeping ours as its predecessor to chain to or to put
// back. So each time that we install over something new we use another entry point, with a predecessor of its
// own that never changes; whatever order the application calls or restores them in, every entry knows its
// next.

// Returns whether the fault is ours; if so it has changed the context in which the thread goes on.
// Async-signal-safe.
using ClaimFault = bool (*)(ucontext_t& interrupted);

// Any thread may call it, always with the same `claim`. Takes no lock, so that a fork at any moment leaves
// nothing locked in the child.
void install_fault_handlers(ClaimFault claim);
bool fault_handlers_in_place();

}  // namespace verbena::memory
