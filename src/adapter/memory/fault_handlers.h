// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ucontext.h>

namespace verbena::memory {

// Code that may run inside a guarded call. This is the code of the object that contains these functions
// (libibverbs.so.1, or a program of ours), and of the libraries which that object names as needed. They
// include the C library with its memcpy. A fault in other code belongs to the application.

// Finds the ranges, which are constant afterwards. Idempotent; any thread may call it, but no signal handler.
void find_guarded_code();

// Whether `address` lies in these ranges. Async-signal-safe.
bool is_guarded_code(const void* address);

// Our handlers of SIGSEGV and SIGBUS, stacked with those of the application.
//
// A fault is first offered to `claim`. If `claim` declines, or the signal is no fault at all (kill(2)), the
// signal has exactly the effect that the previous disposition would have given it. A previous handler is
// called with its mask and flags. The default action ends the process with the same status, and with a core
// dump of the faulting instruction.
//
// The application may install a handler over ours, and keep ours as its predecessor to chain to or to
// restore. So each installation over something new uses another entry point, whose predecessor never changes.
// In whatever order the application calls or restores handlers, each entry point knows the handler to call
// next.

// Returns true if the fault is ours; it has then changed the context in which the thread continues.
// Async-signal-safe.
using ClaimFault = bool (*)(ucontext_t& interrupted);

// Installs the handlers. Any thread may call it, always with the same `claim`. Takes no lock, so that a fork
// at any moment leaves nothing locked in the child.
void install_fault_handlers(ClaimFault claim);
// Whether signals SIGSEGV and SIGBUS reach our handlers first. Costs two queries with sigaction(2).
bool fault_handlers_in_place();

}  // namespace verbena::memory
