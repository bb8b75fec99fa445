// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace verbena::heap {

// Calls function(argument) on a stack of its own, while the caller's stands still: not even the place that a
// function has to return to changes meanwhile. As a process that shares our memory, as in vfork(2), so it
// must not allocate, and knows no other thread's locks. False: it cannot be done, or the function has said
// so. errno is not kept. Not to be cancelled in (CancellationOff).
bool run_on_other_stack(bool (*function)(void*), void* argument);

}  // namespace verbena::heap
