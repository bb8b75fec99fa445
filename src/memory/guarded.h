// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "base/bytes.h"

namespace verbena::memory {

// Runs code that touches user memory and turns a fault into an answer.
//
// An application may unmap a registered region, or truncate the file behind it; hardware would go on using
// the pinned pages, we must not die of it. run_guarded() calls function(argument) and returns true; if a load
// or store inside it raises SIGSEGV or SIGBUS, the call is abandoned there and false returned. So the
// function must own nothing (no locks, no allocations), and what it wrote before the fault stays written.
//
// Works in any thread, also one with signals blocked (the engine's), and beside handlers of the application:
// faults that are not ours go on to whoever had the signal before. install_fault_guard() puts the handler in
// place; it is called at the first registration and again when the application may have put its own over it.
bool run_guarded(void (*function)(void*), void* argument);

void install_fault_guard();

template <class F>
bool guarded(F&& function) {
  return run_guarded([](void* f) { (*static_cast<std::remove_reference_t<F>*>(f))(); }, &function);
}

// memcpy under guard. False: a fault; `to` may be partly written.
bool copy_guarded(std::byte* to, ConstBytes from);

}  // namespace verbena::memory
