// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace verbena::heap {

// Calls function(argument) on a separate stack, while the caller's stack does not change at all, not even its
// return addresses. Runs in a child process that shares our memory, as after vfork(2). So the function must
// not allocate or take locks. Returns false if the call is impossible or the function returned false.
// Clobbers errno. REQUIRES: cancellation is off (CancellationOff)
bool run_on_other_stack(bool (*function)(void*), void* argument);

}  // namespace verbena::heap
