// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "base/bytes.h"
#include "base/result.h"

namespace verbena::memory {

// Runs code that accesses user memory, and turns a fault into a result.
//
// An application may unmap a registered region, or truncate the file behind it. Hardware would go on using
// the pinned pages, and this process must not crash. run_guarded() calls function(argument) and returns true.
// If a load or store inside raises SIGSEGV or SIGBUS, the call is abandoned there and false returned. So the
// function must own nothing (no locks, no allocations), and what it wrote before the fault stays written. It
// may call our own code and that of the libraries we link (memcpy), never the application's. A fault in the
// application's code, for example in its signal handler that interrupted a copy, goes to the application.
//
// Works in any thread, nests, costs no system call, and coexists with handlers of the application. Faults of
// other code go to the previous handler. The kernel kills a process that faults in a thread which blocks
// SIGSEGV or SIGBUS. check_guard(), or a thread's first guarded call, finds out whether the thread blocks
// them. If so, each guarded call unblocks both signals while it runs, for three system calls. But if one of
// these signals is pending, it belongs to the application: then both stay blocked, and the call has no guard.
//
// REQUIRES: install_fault_guard() was called
bool run_guarded(void (*function)(void*), void* argument);

// Installs our handlers of SIGSEGV and SIGBUS over existing handlers. Our handlers pass faults of other code
// on to the existing ones. Called at the first registration of memory, and again when the application may
// have installed its own handlers over ours. If ours are in place, this costs two queries with sigaction(2).
// Any thread may call it, at any time.
void install_fault_guard();

// Returns whether faults reach our handlers first: false before install_fault_guard(), and after the
// application has set a handler of its own. Costs two queries with sigaction(2).
bool fault_guard_in_place();

// Reinstalls our handlers if the application has replaced them, and caches whether this thread blocks SIGSEGV
// or SIGBUS. Call every millisecond on threads that make guarded calls, or before the first guarded call
// after a pause. Costs some system calls.
void check_guard();

// Returns whether a fault in a guarded call of this thread would be caught. For code that accesses memory
// which another process may take away, and that can avoid the access. Reinstalls our handlers if they were
// replaced. Returns false if this failed, or if the thread blocks SIGSEGV or SIGBUS. Caches the kernel's
// answers for a millisecond, so a change by the application goes unnoticed for that long. Costs some
// nanoseconds.
bool guard_holds_here();

// Like run_guarded(), for any callable without arguments.
template <class F>
bool guarded(F&& function) {
  return run_guarded([](void* f) { (*static_cast<std::remove_reference_t<F>*>(f))(); }, &function);
}

// Returns whether this thread may now copy `bytes` bytes with copy_small() (ordered_copy.h):
// is_small_copy(bytes), and the thread's last check found SIGSEGV and SIGBUS unblocked.
bool may_copy_small(size_t bytes);

// Copies `from` to `to` under guard. Returns false after a fault; `to` may be partly written.
bool copy_guarded(std::byte* to, ConstBytes from);

// Execute the two RDMA atomics on user memory, under guard. They use the processor's atomic instructions. So
// they are atomic for the application's threads too, and for every process that maps the memory
// (IBV_ATOMIC_GLOB of ibv_query_device). Values are in host order. Both return the previous value, or nullopt
// if the access faulted and nothing was changed.
//
// REQUIRES: address is a multiple of 8; install_fault_guard() was called
std::optional<uint64_t> fetch_add_guarded(std::byte* address, uint64_t addend);
std::optional<uint64_t> compare_swap_guarded(std::byte* address, uint64_t expected, uint64_t desired);

// Implements check_pages() (region.h) on kernels before 5.14: reads every page under guard, or writes the
// present value back if `writable`. Also accepts device memory, which newer kernels refuse in check_pages().
// Errors: EFAULT. REQUIRES: begin and bytes are multiples of the page size
Result<void> touch_pages(uintptr_t begin, uintptr_t bytes, bool writable);

}  // namespace verbena::memory
