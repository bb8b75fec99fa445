// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

#include "base/bytes.h"

namespace verbena::memory {

// Runs code that touches user memory and turns a fault into an answer.
//
// An application may unmap a registered region, or truncate the file behind it; hardware would go on using
// the pinned pages, we must not die of it. run_guarded() calls function(argument) and returns true; if a load
// or store inside it raises SIGSEGV or SIGBUS, the call is abandoned there and false returned. So the
// function must own nothing (no locks, no allocations), and what it wrote before the fault stays written. It
// may call our own code and that of the libraries we link (memcpy), never the application's: a fault raised
// there, say in an application's signal handler that interrupted a copy, is the application's own.
//
// Works in any thread, nests, costs no system call, and lives beside handlers of the application: faults that
// are not ours go on to the handler that was there before. The kernel kills a process that faults in a thread
// which blocks SIGSEGV or SIGBUS: a thread that was last found to (check_guard()), or that nobody has looked
// at, has both open for as long as the call takes, at the price of two system calls. Not if one of them waits
// to be delivered: that is the application's, which would get it; such a call has no guard.
//
// REQUIRES: install_fault_guard() was called
bool run_guarded(void (*function)(void*), void* argument);

// Puts the handlers of SIGSEGV and SIGBUS in place, over whatever is there, to which they chain. Called at
// the first registration, and again when the application may have put its own over them: when they are in
// place it is two queries of sigaction(2). Any thread may call it, at any time.
void install_fault_guard();

// Whether faults reach us first: false before the installation, and after the application set a handler of
// its own. Two queries of sigaction(2).
bool fault_guard_in_place();

// For who makes guarded calls, once in a millisecond or before the first after a while: puts the handlers
// back in place if the application has put its own over them, and finds out whether this thread blocks their
// signals. Until the next time both are believed to be so. Some system calls.
void check_guard();

// Whether a guard holds in this thread, for code that could do without what it guards: memory that another
// process can take away, not just the application. Puts the handlers back in place; false while the thread
// blocks a signal of theirs. What the kernel says is believed for a millisecond, so the application's next
// change of either goes unnoticed for as long. Costs some nanoseconds.
bool guard_holds_here();

template <class F>
bool guarded(F&& function) {
  return run_guarded([](void* f) { (*static_cast<std::remove_reference_t<F>*>(f))(); }, &function);
}

// Whether so few bytes may be copied by copy_small() (small_copy.h), here and now.
bool may_copy_small(size_t bytes);

// memcpy under guard. False: a fault; `to` may be partly written.
bool copy_guarded(std::byte* to, ConstBytes from);

}  // namespace verbena::memory
